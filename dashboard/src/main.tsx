import "./styles/index.css";

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { ApiError, AwayError, whenSignedOut } from "./api/client";
import { connection } from "./api/connection";
import { sessionQuery } from "./api/queries";
import { applyTheme } from "./app/theme";
import { makeRouter } from "./router";
import { Toasts } from "./ui/toast";

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      // What the API refused it refuses again; what got no answer is asked again when the API is back.
      retry: (count, error) => !(error instanceof ApiError) && !(error instanceof AwayError) && count < 2,
      refetchOnWindowFocus: true,
      networkMode: "always",
    },
    // The API may be on this machine or beside it. That the browser has no way to the internet says nothing of it.
    mutations: { networkMode: "always" },
  },
});
const router = makeRouter(queries);

connection.onBack(() => {
  void queries.invalidateQueries();
  void router.invalidate();
});
whenSignedOut(() => {
  if (queries.getQueryData(sessionQuery.queryKey) === null) return;
  queries.setQueryData(sessionQuery.queryKey, null);
  const next = router.state.location.href;
  void router.navigate({ to: "/signin", search: next === "/" ? {} : { next } });
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
        <Toasts />
      </QueryClientProvider>
    </StrictMode>,
  );
}
