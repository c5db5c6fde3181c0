// Markdown as elements: the parser's tokens become React's elements here, never HTML. HTML in a text is shown as text.
import "../styles/markdown.css";

import { lexer, type Token, type Tokens } from "marked";
import type { ReactNode } from "react";

import { addressOf } from "./address";

export interface MarkdownProps {
  text: string;
  /** The URL of an image whose path stands in the text; null if it is not shown. */
  image?: (path: string) => string | null;
  /** A line of the text is a line of the page, as in comments. */
  breaks?: boolean;
}

export function MarkdownBody({ text, image = () => null, breaks = false }: MarkdownProps) {
  return <div className="markdown">{blocks(lexer(text, { gfm: true, breaks }), image)}</div>;
}

type Images = NonNullable<MarkdownProps["image"]>;

const blocks = (tokens: readonly Token[], image: Images): ReactNode =>
  tokens.map((token, at) => <Block key={at} token={token} image={image} />);
const inline = (tokens: readonly Token[] | undefined, image: Images): ReactNode =>
  tokens?.map((token, at) => <Inline key={at} token={token} image={image} />);

function Block({ token: any, image }: { token: Token; image: Images }) {
  const token = any as Tokens.Generic;
  switch (token.type) {
    case "heading": {
      // The page has the first heading itself.
      const Heading = `h${Math.min(6, (token as Tokens.Heading).depth + 1)}` as "h2";
      return <Heading>{inline(token.tokens, image)}</Heading>;
    }
    case "paragraph":
      return <p>{inline(token.tokens, image)}</p>;
    case "text":
      return <>{token.tokens ? inline(token.tokens, image) : unescaped(token as Tokens.Text)}</>;
    case "code":
      return (
        <pre>
          <code>{(token as Tokens.Code).text}</code>
        </pre>
      );
    case "blockquote":
      return <blockquote>{blocks(token.tokens ?? [], image)}</blockquote>;
    case "hr":
      return <hr />;
    case "list": {
      const list = token as Tokens.List;
      const items = list.items.map((item, at) => (
        <li key={at} className={item.task ? "task" : undefined}>
          {blocks(item.tokens, image)}
        </li>
      ));
      return list.ordered ? <ol start={list.start === "" ? 1 : list.start}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return <TableBlock table={token as Tokens.Table} image={image} />;
    case "checkbox":
      return <Inline token={token} image={image} />;
    case "space":
    case "def":
      return null;
    default:
      return <p>{token.raw}</p>;
  }
}

function TableBlock({ table, image }: { table: Tokens.Table; image: Images }) {
  const right = (at: number) => (table.align[at] === "right" ? "right" : undefined);
  return (
    // Scrolled by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="table-wrap" role="region" aria-label="Table of the text" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            {table.header.map((cell, at) => (
              <th key={at} scope="col" className={right(at)}>
                {inline(cell.tokens, image)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, column) => (
                <td key={column} className={right(column)}>
                  {inline(cell.tokens, image)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Inline({ token: any, image }: { token: Token; image: Images }): ReactNode {
  const token = any as Tokens.Generic;
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens, image)}</strong>;
    case "em":
      return <em>{inline(token.tokens, image)}</em>;
    case "del":
      return <del>{inline(token.tokens, image)}</del>;
    case "codespan":
      return <code>{(token as Tokens.Codespan).text}</code>;
    case "checkbox":
      return (
        <>
          <input type="checkbox" checked={(token as Tokens.Checkbox).checked} readOnly disabled aria-label="done" />{" "}
        </>
      );
    case "br":
      return <br />;
    case "link": {
      const address = addressOf((token as Tokens.Link).href);
      if (address === null) return <>{inline(token.tokens, image)}</>;
      return (
        <a href={address} target="_blank" rel="noopener noreferrer nofollow">
          {inline(token.tokens, image)}
        </a>
      );
    }
    case "image": {
      const { href, text } = token as Tokens.Image;
      const url = image(href);
      return url === null ? <span className="muted">[image: {text || href}]</span> : <img src={url} alt={text} />;
    }
    case "text":
      return token.tokens ? inline(token.tokens, image) : unescaped(token as Tokens.Text);
    case "escape":
      return (token as Tokens.Escape).text;
    default:
      return token.raw;
  }
}

/** The parser leaves entities in texts: `&lt;`, `&#39;`. */
function unescaped({ text }: Tokens.Text): string {
  return text.replace(/&(?:#(\d{1,6})|(amp|lt|gt|quot));/g, (entity, code: string | undefined, name: string | undefined) => {
    if (name) return { amp: "&", lt: "<", gt: ">", quot: '"' }[name] ?? entity;
    const point = Number(code);
    return point > 31 && point <= 0x10ffff ? String.fromCodePoint(point) : entity;
  });
}
