package plan

import (
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// reported: what the listeners of proxies of the namespace report; of all, where it is the root namespace.
func reported(c *change, _ input.Types, e mirror.Edit) {
	namespace := e.Key().Namespace
	if namespace == c.was || namespace == c.in.Root() {
		namespace = "*"
	}
	c.reporting[namespace] = true
}

// telemetryViews: proxies of the namespace, where the record selects some of them, or did: it does in no other, whatever its namespace. All,
// where proxies of some namespace send spans now, or no longer: they name themselves in them.
func telemetryViews(c *change, t input.Types, e mirror.Edit) {
	labelKeys(c, t, e)
	for _, r := range records(e) {
		if of := r.(*model.Telemetry); len(of.Spec.GetSelector().GetMatchLabels()) > 0 {
			c.views[of.Key.Namespace] = true
		}
	}
}

// reports says whether what the listeners of a namespace's proxies report may be something else.
func (d *dirt) reports(namespace string) bool { return d.reporting["*"] || d.reporting[namespace] }
