// What the page uses of Apache ECharts. Tooltips are the page's own: those of ECharts are HTML made of strings.
import * as core from "echarts/core";
import { HeatmapChart, ParallelChart, ScatterChart } from "echarts/charts";
import { GridComponent, ParallelComponent } from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

core.use([HeatmapChart, ParallelChart, ScatterChart, GridComponent, ParallelComponent, SVGRenderer]);
export const init = core.init;
