package telemetry

import (
	"fmt"
	"maps"
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// wanted is what Telemetries say of one provider of access logs.
type wanted struct {
	filter   string
	disabled bool
	at       place
}

// logs decides the access logs. The nearest level that names providers names all that count; entries without providers are about those of
// the entry before (istio: pilot/pkg/model/telemetry.go, mergeLogs).
func (d *decision) logs(all []*model.Telemetry) intern.List[build.Log] {
	defaults := d.Mesh.Spec.GetDefaultProviders().GetAccessLogging()
	say := map[string]wanted{}
	all = slices.DeleteFunc(slices.Clone(all), func(t *model.Telemetry) bool { return len(t.Spec.GetAccessLogging()) == 0 })
	if len(all) == 0 {
		for i, name := range defaults {
			say[name] = wanted{at: place{model.MeshKey, fmt.Sprintf("defaultProviders.accessLogging[%d]", i)}}
		}
	}
	counting, filters := defaults, map[string]string{}
	for _, t := range all {
		var named []string
		for _, l := range t.Spec.GetAccessLogging() {
			if !d.logsApply(l) {
				continue
			}
			for _, name := range namesOf(l.GetProviders()) {
				named = append(named, name)
				filters[name] = l.GetFilter().GetExpression()
			}
		}
		if len(named) > 0 {
			counting = named
		}
	}
	before := defaults
	for _, t := range all {
		for i, l := range t.Spec.GetAccessLogging() {
			if len(l.GetProviders()) > 0 {
				before = namesOf(l.GetProviders())
			}
			if !d.logsApply(l) {
				continue
			}
			for _, name := range before {
				if !slices.Contains(counting, name) {
					continue
				}
				w := wanted{at: place{t.Key, fmt.Sprintf("spec.accessLogging[%d]", i)}, disabled: l.GetDisabled().GetValue()}
				if !w.disabled {
					w.filter = filters[name]
				}
				say[name] = w
			}
		}
	}
	var out []build.Log
	for _, name := range slices.Sorted(maps.Keys(say)) {
		if log, ok := d.log(name, say[name]); ok {
			out = append(out, log)
		}
	}
	return logs.List(out...)
}

func (d *decision) logsApply(l *telemetryv1.AccessLogging) bool {
	return d.applies(l.GetMatch().GetMode())
}

// log is one access log; false: it cannot be, or its provider is for none. A disabled one counts too: accessLogFile is without effect.
func (d *decision) log(name string, w wanted) (build.Log, bool) {
	p := build.Provider(d.Mesh.Spec, name)
	caps, logs := build.LogCap(p)
	if p == nil || !logs {
		if p != nil && p.GetPrometheus() == nil {
			d.warn(w.at, problem.NotSupported, "provider %s: it is for no access logs that this version sends", name)
		}
		return build.Log{}, false // that no provider has the name, the normaliser says
	}
	log := build.Log{Provider: name, Filter: w.filter, Disabled: w.disabled}
	if w.disabled {
		return log, true
	}
	if w.filter != "" {
		caps |= xds.CapCELFilter
	}
	if !d.Caps.Has(caps) {
		d.warn(w.at, problem.NotSupported, "provider %s: some proxies of namespace %s do not have %v: they do not log to it", name, d.Namespace, xds.Extensions(caps&^d.Caps))
		return build.Log{}, false
	}
	if of, has := build.ServiceOf(p); has {
		var found bool
		if log.To, found = d.service(name, of, w.at); !found {
			return build.Log{}, false
		}
	}
	return log, true
}
