package patch

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// Matches finds a patch of HTTP_ROUTE by name and action just as a search of all patches does.
func TestRoutesMatchByIndex(t *testing.T) {
	host := &routev3.VirtualHost{}
	routeYAML(t, twoRoutes, host)
	host.Routes = append(host.Routes, &routev3.Route{}, &routev3.Route{Name: "one", Action: &routev3.Route_NonForwardingAction{}},
		&routev3.Route{Action: &routev3.Route_Redirect{}}, &routev3.Route{Name: "two", Action: &routev3.Route_DirectResponse{}})
	var matches []string
	for _, name := range []string{"", "one", "two", "nix"} {
		for _, action := range []string{"ANY", "ROUTE", "REDIRECT", "DIRECT_RESPONSE"} {
			matches = append(matches, fmt.Sprintf("{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: %q, action: %s}}}}, patch: {operation: REMOVE}}", name, action))
		}
	}
	yes := 0
	for i := range matches {
		for k := range i + 1 {
			patches := routePatches(t, "["+matches[i]+", "+matches[k]+"]")
			of := RoutesOf(host, patches)
			for _, r := range host.Routes {
				want := matchesRoute(patches[0], r) || matchesRoute(patches[1], r)
				if got := of.Matches(r); got != want {
					t.Errorf("%s and %s match %v: %v, want %v", matches[i], matches[k], r, got, want)
				} else if got {
					yes++
				}
			}
		}
	}
	if yes < 100 {
		t.Errorf("%d matches, want hundreds", yes)
	}
}

// The head of a virtual host without its routes becomes that of the whole virtual host, and the routes that patches of
// VIRTUAL_HOST state follow or replace its routes.
func TestHeadOf(t *testing.T) {
	vh := func(op, value string) string {
		return "{applyTo: VIRTUAL_HOST, patch: {operation: " + op + ", value: " + value + "}}"
	}
	const routes = `routes: [{name: new, match: {prefix: /new}, redirect: {}}]`
	for _, patches := range []string{
		"", vh("MERGE", "{domains: [b]}"), vh("MERGE", "{domains: [b], "+routes+"}"), vh("MERGE_AND_REPLACE_LIST", "{domains: [b]}"),
		vh("MERGE_AND_REPLACE_LIST", "{"+routes+"}"), vh("REPLACE", "{name: x, domains: [x], "+routes+"}"), vh("REPLACE", "{name: x}"),
		vh("MERGE", "{"+routes+"}") + ", " + vh("REPLACE", "{name: x, domains: [x]}") + ", " + vh("MERGE", "{"+routes+"}"),
		vh("MERGE", "{name: y}") + ", " + vh("MERGE", `{routes: [{match: {prefix: /x}}]}`) + ", " + vh("MERGE", "{"+routes+"}"),
		vh("REMOVE", "{}"), vh("MERGE", "{require_tls: 9}") + ", " + vh("MERGE", "{"+routes+"}"),
	} {
		whole := &routev3.VirtualHost{}
		routeYAML(t, twoRoutes, whole)
		head, own := proto.CloneOf(whole), whole.Routes
		head.Routes = nil
		list := routePatches(t, "["+patches+"]")
		want, _ := ApplyVirtualHost(whole, list)
		got, keeps := HeadOf(head, list)
		if got != nil && keeps {
			got.Routes = append(own[:len(own):len(own)], got.Routes...)
		}
		if !proto.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s:\n%v\nwant\n%v", patches, got, want)
		}
	}
}

// Beside many routes, the cost of a patch that matches none and of a patch of VIRTUAL_HOST does not grow with their
// number.
func TestCostOfPatchesBesideManyRoutes(t *testing.T) {
	for _, patch := range []string{
		"{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: nix%d}}}}, patch: {operation: MERGE, value: {route: {timeout: 1s}}}}",
		"{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {retry_policy: {retry_back_off: {max_interval: %ds}}}}}",
	} {
		cost := func(n int) float64 {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf(patch, i+1))
			}
			patches := routePatches(t, "["+strings.Join(list, ", ")+"]")
			return testing.AllocsPerRun(3, func() {
				head, _ := HeadOf(&routev3.VirtualHost{Name: "a:80", Domains: []string{"a"}}, patches)
				of := RoutesOf(head, patches)
				for i := range 500 {
					of.Change(&routev3.Route{Name: fmt.Sprint("r", i)})
				}
			})
		}
		if few, many := cost(2), cost(100); many > few+100*60 {
			t.Errorf("%s: 2 patches cost %v allocations beside 500 routes, and 100 cost %v", patch, few, many)
		}
	}
}
