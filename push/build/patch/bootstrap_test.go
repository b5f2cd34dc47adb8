package patch

import (
	"strings"
	"testing"
)

// TestBootstrapOfTheAgent: patches cannot set the fields of the bootstrap that belong to the agent, and can set all
// others.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestBootstrapOfTheAgent(t *testing.T) {
	for value, want := range map[string]string{
		"{node: {id: other}}": "patch.value.node",
		"{admin: {address: {socket_address: {address: 0.0.0.0, port_value: 1}}}}":    "patch.value.admin.address",
		"{admin: {profile_path: /tmp/p}}":                                            "",
		"{dynamic_resources: {lds_config: {path: /x}}}":                              "patch.value.dynamic_resources",
		"{static_resources: {clusters: [{name: a}, {name: sds-grpc}]}}":              "patch.value.static_resources.clusters[1].name",
		"{static_resources: {clusters: [{name: xds-grpc}]}}":                         "patch.value.static_resources.clusters[0].name",
		"{static_resources: {clusters: [{name: a}], listeners: [{name: sds-grpc}]}}": "",
		"{no_such_field: 1}": "no_such_field",
	} {
		err := Problem(filter(t, "{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: "+value+"}}"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}
