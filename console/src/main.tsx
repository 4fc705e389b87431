import { createRoot } from "react-dom/client";
import { App } from "./App";
import { comeBack } from "./oauth";
import "./style.css";

void comeBack().then((back) =>
  createRoot(document.getElementById("root")!).render(<App back={back} />),
);
