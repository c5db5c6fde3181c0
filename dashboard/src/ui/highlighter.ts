// Loaded on demand, and for these languages alone.
import bash from "highlight.js/lib/languages/bash";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

export const highlighter = createLowlight({ yaml, python, json, bash });
