// The views of the page, in the order of their tabs.

import attention from "unrolled/view-attention";
import beams from "unrolled/view-beams";
import frames from "unrolled/view-frames";
import gradients from "unrolled/view-gradients";
import overview from "unrolled/view-overview";
import runs from "unrolled/view-runs";
import states from "unrolled/view-states";
import step from "unrolled/view-step";
import words from "unrolled/view-words";

export const VIEWS = { overview, states, step, gradients, attention, beams, frames, words, runs };
