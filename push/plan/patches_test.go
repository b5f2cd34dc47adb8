package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// For each patch the number of resources that it changes is counted: each resource once, whatever the number of proxies
// and scopes, and none if the filter, the named resource or the selected proxies do not exist. After an edit only the
// affected resources are built again.
func TestPatchesAreCounted(t *testing.T) {
	filter := func(name, text string) model.Record { return rec(t, model.KindEnvoyFilter, name, text) }
	connect := func(seconds int) model.Record {
		return filter("istio-system/all", fmt.Sprintf(`configPatches:
- {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {portNumber: 80}}, patch: {operation: MERGE, value: {connect_timeout: %ds}}}
- {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: nobody.shop}}, patch: {operation: MERGE, value: {connect_timeout: 3s}}}
- {applyTo: CLUSTER, patch: {operation: ADD, value: {name: added, type: STATIC, connect_timeout: 1s}}}
- {applyTo: CLUSTER, match: {cluster: {portNumber: 90}}, patch: {operation: REMOVE}}
- {applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "%s:80"}}}, patch: {operation: MERGE, value: {decorator: {operation: x}}}}
- {applyTo: ROUTE_CONFIGURATION, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {most_specific_header_mutations_wins: true}}}
`, seconds, web))
	}
	insert := func(anchor string) string {
		return fmt.Sprintf(`configPatches:
- applyTo: HTTP_FILTER
  match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 80, filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: %s}}}}}
  patch:
    operation: INSERT_BEFORE
    value: {name: buffer, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}
`, anchor)
	}
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "tcp:90:TCP"), svc(t, "shop/more", "10.96.0.2", "http:80:HTTP"), connect(2),
		filter("istio-system/before-router", insert("envoy.filters.http.router")), filter("istio-system/before-nothing", insert("nothing")),
		filter("shop/nobody", "workloadSelector: {labels: {app: nobody}}\n"+insert("envoy.filters.http.router")))
	p := New(Settings{Snapshot: s})
	lines := func() string {
		var lines []string
		for _, c := range p.Patches() {
			lines = append(lines, fmt.Sprintf("%s[%d]=%d", c.Patch.Filter.Key.Name, c.Patch.Index, c.Changed))
		}
		return strings.Join(lines, " ")
	}
	if got, want := lines(), "all[0]=0 all[1]=0 all[2]=0 all[3]=0 all[4]=0 all[5]=0 before-nothing[0]=0 before-router[0]=0 nobody[0]=0"; got != want {
		t.Errorf("before anybody joined:\n%s, want\n%s", got, want)
	}
	p.Join(node("shop", "a"))
	p.Join(node("shop", "b"))
	p.Join(node("other", "c"))
	want := "all[0]=2 all[1]=0 all[2]=1 all[3]=1 all[4]=2 all[5]=2 before-nothing[0]=0 before-router[0]=1 nobody[0]=0"
	if got := lines(); got != want {
		t.Errorf("with three proxies:\n%s, want\n%s", got, want)
	}
	for spec := range p.counts.effective { // resources that are built again after this are counted again
		p.counts.effective[spec] = nil
	}
	p.Apply(s.Apply(2, []model.Record{connect(4)}, nil))
	if got, want := lines(), strings.Replace(want, "before-router[0]=1", "before-router[0]=0", 1); got != want {
		t.Errorf("of what an edit touched:\n%s, want\n%s", got, want)
	}
}

// Resources that a patch removes as a whole are not planned, so their names are counted, each once: clusters of both
// directions (three ports of web, and passthrough) and listeners.
func TestRemovalsAreCounted(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "tcp:90:TCP", "more:91:TCP"), svc(t, "shop/more", "10.96.0.2", "http:80:HTTP"),
		rec(t, model.KindDestinationRule, "shop/web", "{host: "+web+", subsets: [{name: v1, labels: {version: v1}}]}"),
		rec(t, model.KindEnvoyFilter, "istio-system/all", `configPatches:
- {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {portNumber: 90}}, patch: {operation: REMOVE}}
- {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {portNumber: 99}}, patch: {operation: REMOVE}}
- {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {name: BlackHoleCluster}}, patch: {operation: REMOVE}}
- {applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}, patch: {operation: REMOVE}}
- {applyTo: LISTENER, match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 91}}, patch: {operation: REMOVE}}
- {applyTo: LISTENER, match: {context: SIDECAR_OUTBOUND, listener: {name: virtualOutbound}}, patch: {operation: REMOVE}}
- {applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: REMOVE}}
`))
	p := New(Settings{Snapshot: s})
	p.Join(node("shop", "a", "app=web"))
	p.Join(node("other", "b"))
	var got []int
	for _, c := range p.Patches() {
		got = append(got, c.Changed)
	}
	if want := []int{2, 0, 1, 4, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
