// Fills the places of a report's page: plots, and the story of a run.

import { carried } from "./dom.js";
import { drawPlots } from "./plots.js";
import { StoryView } from "./run.js";

for (const place of document.querySelectorAll("[data-from]")) {
  if (!(place instanceof HTMLElement)) continue;
  const data = carried(place.dataset.from ?? "");
  if (place.classList.contains("story-place")) new StoryView(place, data);
  else drawPlots(place, data);
}
