package plan

import (
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// reported marks the telemetry of the proxies in the record's namespace, so that it is planned again. For the root
// namespace, it marks the telemetry of all proxies.
func reported(c *change, _ input.Types, e mirror.Edit) {
	c.reporting[c.reach(e)] = true
}

// telemetryViews marks the views of the record's namespace if the record has a selector before or after the edit. A
// view has all facts that decide the configuration of equal proxies. Selectors never select proxies of other
// namespaces. If the edit changes the namespaces whose proxies send spans, telemetryViews marks all views, since a view
// contains the description of a proxy that sends spans.
func telemetryViews(c *change, t input.Types, e mirror.Edit) {
	labelKeys(c, t, e)
	for _, r := range records(e) {
		if of := r.(*model.Telemetry); len(of.Spec.GetSelector().GetMatchLabels()) > 0 {
			c.views[of.Key.Namespace] = true
		}
	}
}

// reports reports whether the telemetry of a namespace's proxies may have changed.
func (d *affected) reports(namespace string) bool { return d.reporting["*"] || d.reporting[namespace] }
