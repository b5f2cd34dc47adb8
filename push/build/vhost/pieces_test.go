package vhost

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// hostPatches are patches of a virtual host and its routes, some of which Envoy refuses.
var hostPatches = []string{
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: r3-1}}}}, patch: {operation: MERGE, value: {name: moved, route: {timeout: 9s}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: moved}}}}, patch: {operation: MERGE, value: {redirect: {path_redirect: /}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: REDIRECT}}}}, patch: {operation: MERGE, value: {decorator: {operation: o}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: ROUTE, name: r3-2}}}}, patch: {operation: REMOVE}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: REDIRECT}}}}, patch: {operation: REMOVE}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: ROUTE}}}}, patch: {operation: MERGE, value: {match: {headers: [{name: ""}]}}}`,
	`HTTP_ROUTE, patch: {operation: MERGE, value: {metadata: {filter_metadata: {a: {b: 1}, c: {d: 1}}}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {domainName: more}}}, patch: {operation: MERGE, value: {response_headers_to_remove: [x]}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {name: x}}}, patch: {operation: MERGE, value: {response_headers_to_remove: [y]}}`,
	`HTTP_ROUTE, patch: {operation: ADD, value: {name: added, match: {prefix: /new}, redirect: {}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: added}}}}, patch: {operation: INSERT_BEFORE, value: {match: {prefix: /before}, redirect: {}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: DIRECT_RESPONSE}}}}, patch: {operation: INSERT_AFTER, value: {match: {prefix: /after}, redirect: {}}}`,
	`HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: r3-0}}}}, patch: {operation: INSERT_FIRST, value: {match: {prefix: /first}, redirect: {}}}`,
	`HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {match: {prefix: /bad}}}`,
	`VIRTUAL_HOST, patch: {operation: MERGE, value: {domains: [more], response_headers_to_remove: [server]}}`,
	`VIRTUAL_HOST, patch: {operation: MERGE, value: {routes: [{name: host, match: {prefix: /host}, direct_response: {status: 200}}]}}`,
	`VIRTUAL_HOST, patch: {operation: MERGE_AND_REPLACE_LIST, value: {routes: [{name: list, match: {prefix: /list}, redirect: {}}]}}`,
	`VIRTUAL_HOST, patch: {operation: MERGE, value: {require_tls: 9}}`,
	`VIRTUAL_HOST, patch: {operation: MERGE, value: {retry_policy: {retry_back_off: {max_interval: 2s}}}}`,
	`VIRTUAL_HOST, patch: {operation: REPLACE, value: {name: x, domains: [x, more], routes: [{match: {prefix: /x}, direct_response: {status: 200}}]}}`,
}

// A virtual host whose routes are patched one by one has the bytes of the whole virtual host, patched as one message.
func TestPatchedRouteByRoute(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	removals := 0
	for range 600 {
		var list []string
		for range 1 + r.IntN(6) {
			list = append(list, "{applyTo: "+hostPatches[r.IntN(len(hostPatches))]+"}")
		}
		if r.IntN(40) == 0 {
			list = append(list, "{applyTo: VIRTUAL_HOST, patch: {operation: REMOVE}}")
		}
		s := specOf(manyRules(t, 3, -1))
		if r.IntN(3) == 0 {
			s = specOf(nil)
		}
		text := "[" + strings.Join(list, ", ") + "]"
		s.Patches = patchList(t, text)
		if f := build(t, text, s); len(f.Bytes) == 0 {
			removals++
		}
	}
	if removals == 0 || removals > 60 {
		t.Errorf("%d virtual hosts are removed, want a few", removals)
	}
}

// Each route that a patch changes is a piece of the work; the other routes stay encoded.
func TestPatchedRoutesArePieces(t *testing.T) {
	const rules = 40 // of three routes each
	for match, want := range map[string]int{`{name: r40-7}`: 3, `{name: nix}`: 0, `{action: REDIRECT}`: 0, `{action: ROUTE}`: 3 * rules} {
		s := specOf(manyRules(t, rules, -1))
		count := func() (pieces int) {
			if _, err := s.FragmentInPieces(func() { pieces++ }); err != nil {
				t.Fatal(err)
			}
			return pieces
		}
		before := count() + 1
		s.Patches = patchList(t, fmt.Sprintf(`[{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: %s}}}, patch: {operation: MERGE, value: {response_headers_to_remove: [x]}}}]`, match))
		if got := count() - before; got != want {
			t.Errorf("%s: %d pieces, want %d", match, got, want)
		}
	}
}

// The field numbers by which encoded routes are matched are those of Envoy's API.
func TestOutline(t *testing.T) {
	fields := (&routev3.Route{}).ProtoReflect().Descriptor().Fields()
	for name, number := range map[string]protowire.Number{
		"name": fieldName, "route": fieldRoute, "redirect": fieldRedirect, "direct_response": fieldDirectResponse,
	} {
		if fd := fields.ByTextName(name); fd == nil || fd.Number() != number {
			t.Errorf("%s is not field %d of Route", name, number)
		}
	}
}
