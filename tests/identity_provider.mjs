// An identity provider: npm's `oidc-provider`, which is certified for OpenID Connect, on a port of its own.
// Arguments: the folder with node_modules, a JSON file with the accounts, and the redirect URIs of the client `weft`.
// Prints its issuer. An account is a login and its claims; the file is read again for each sign-in.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [folder, file, claimsIn, ...redirectUris] = process.argv.slice(2);
const found = createRequire(`${folder}/`).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(found).href);

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "weft", client_secret: "a secret of the tests", redirect_uris: redirectUris }],
    claims: { openid: ["sub", "groups"], profile: ["preferred_username"], email: ["email", "email_verified"] },
    conformIdTokenClaims: claimsIn === "userinfo",
    cookies: { keys: ["tests"] },
    pkce: { required: () => true },
    findAccount: (_, sub) => {
      const claims = JSON.parse(readFileSync(file, "utf-8"))[sub];
      return claims && { accountId: sub, claims: () => ({ sub, ...claims }) };
    },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
process.stdin.on("end", () => process.exit()).resume();
