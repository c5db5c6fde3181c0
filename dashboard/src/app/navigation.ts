// The pages that the menu leads to, in its order. `admin`: only administrators see it.
export interface Place {
  to: "/";
  name: string;
  admin?: boolean;
}

export const NAVIGATION: readonly Place[] = [{ to: "/", name: "Jobs" }];
