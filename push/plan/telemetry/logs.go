package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// logSettings contains the merged settings of Telemetries for one provider of access logs.
type logSettings struct {
	filter   string
	disabled bool
	at       place
}

// logs decides the access logs. The Telemetries are in ascending precedence. Only the providers of the last Telemetry
// that names providers are used. An entry without providers applies to the providers of the last earlier entry that
// names providers. If no earlier entry names providers, the entry applies to the providers of the mesh. These are
// defaultProviders, or else accessLogFile (istio: pilot/pkg/model/telemetry.go, mergeLogs).
//
// The use of accessLogFile, and of filters in entries without providers, differs from istiod and follows the API
// (https://istio.io/latest/docs/reference/config/telemetry/#AccessLogging).
func (d *decision) logs(all []*model.Telemetry) intern.List[build.Log] {
	defaults := d.Mesh.Spec.GetDefaultProviders().GetAccessLogging()
	settings := map[string]logSettings{}
	all = slices.DeleteFunc(slices.Clone(all), func(t *model.Telemetry) bool { return len(t.Spec.GetAccessLogging()) == 0 })
	if len(all) == 0 {
		for i, name := range defaults {
			settings[name] = logSettings{at: place{model.MeshKey, fmt.Sprintf("defaultProviders.accessLogging[%d]", i)}}
		}
	}
	if len(defaults) == 0 && d.Mesh.Spec.GetAccessLogFile() != "" {
		defaults = []string{build.MeshLog}
	}
	counting, filters := d.filters(all, defaults)
	before := defaults
	for _, t := range all {
		for i, l := range t.Spec.GetAccessLogging() {
			if len(l.GetProviders()) > 0 {
				before = namesOf(l.GetProviders())
			}
			if !d.logsApply(l) {
				continue
			}
			if len(before) == 0 && !l.GetDisabled().GetValue() {
				d.unprovided(place{t.Key, fmt.Sprintf("spec.accessLogging[%d]", i)}, "accessLogging", "nor accessLogFile")
			}
			for _, name := range before {
				if !slices.Contains(counting, name) {
					continue
				}
				w := logSettings{at: place{t.Key, fmt.Sprintf("spec.accessLogging[%d]", i)}, disabled: l.GetDisabled().GetValue()}
				if !w.disabled {
					w.filter = filters[name]
				}
				settings[name] = w
			}
		}
	}
	var out []build.Log
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if log, ok := d.log(name, settings[name]); ok {
			out = append(out, log)
		}
	}
	if len(out) == 1 && out[0] == (build.Log{Provider: build.MeshLog}) {
		return intern.List[build.Log]{} // equal to a mesh without Telemetries
	}
	return logs.List(out...)
}

// filters returns the providers of access logs that are used, in the result counting. The result filters has, by
// provider, the filter expressions.
func (d *decision) filters(all []*model.Telemetry, defaults []string) (counting []string, filters map[string]string) {
	counting, filters = defaults, map[string]string{}
	before := defaults
	for _, t := range all {
		var named []string
		for _, l := range t.Spec.GetAccessLogging() {
			names := namesOf(l.GetProviders())
			if len(names) > 0 {
				before = names
			}
			if !d.logsApply(l) {
				continue
			}
			named = append(named, names...)
			for _, name := range before {
				if len(names) > 0 || l.GetFilter() != nil {
					filters[name] = l.GetFilter().GetExpression()
				}
			}
		}
		if len(named) > 0 {
			counting = named
		}
	}
	return counting, filters
}

// unprovided adds the problem that an entry of a Telemetry has no provider. The parameter field is the field of
// defaultProviders that the message names. The parameter alternative is the end of the message, with another setting
// that could name a provider; it may be empty. store/normal reports the first accessLogging entry of a Telemetry
// without a selector in the root namespace. For this entry, unprovided adds nothing.
func (d *decision) unprovided(at place, field, alternative string) {
	first := at.field == "spec.accessLogging[0]" && at.key.Namespace == d.Root()
	if t, is := d.Get(at.key); is && first && t.(*model.Telemetry).Spec.GetSelector() == nil {
		return
	}
	message := strings.TrimSpace(fmt.Sprintf("names no provider, and neither a Telemetry above it does nor meshConfig.defaultProviders.%s %s",
		field, alternative)) + ": it has no effect"
	p := input.Warning(at.key, problem.NoEffect, at.field, message)
	if field == "accessLogging" {
		p.Analyzer = problem.InvalidTelemetryProvider
	}
	d.out.Problems = append(d.out.Problems, p)
}

// logsApply reports whether an entry applies to the decision's direction (outbound or inbound).
func (d *decision) logsApply(l *telemetryv1.AccessLogging) bool {
	return d.applies(l.GetMatch().GetMode())
}

// log returns the access log of one provider. A disabled log is returned too, because it disables accessLogFile. The
// second result is false if the provider cannot be used. In this case log adds a problem, except for Prometheus and for
// unknown names. store/normal reports unknown names.
func (d *decision) log(name string, w logSettings) (build.Log, bool) {
	p := build.Provider(d.Mesh.Spec, name)
	caps, logs := build.LogCap(p)
	if name == build.MeshLog {
		caps, logs = xds.CapFileAccessLog, true
	}
	if name != build.MeshLog && p == nil || !logs {
		if p != nil && p.GetPrometheus() == nil {
			d.warn(w.at, problem.NotSupported, "provider %s: this version sends no access logs to this kind of provider", name)
		}
		return build.Log{}, false // store/normal reports unknown names
	}
	log := build.Log{Provider: name, Filter: w.filter, Disabled: w.disabled}
	if w.disabled {
		return log, true
	}
	if w.filter != "" {
		caps |= xds.CapCELFilter
	}
	if !d.Caps.Has(caps) {
		d.warn(w.at, problem.NotSupported, "provider %s: some proxies of namespace %s do not have %v: they do not log to it",
			name, d.Namespace, xds.Extensions(caps&^d.Caps))
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
