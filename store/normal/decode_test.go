package normal

import (
	"strings"
	"testing"
)

// A value that does not fit its type is an error at its field: numbers, wrapped values, keys of maps, two fields of a
// oneof. All JSON forms of a number are accepted.
func TestTypeErrorsHaveFields(t *testing.T) {
	for _, c := range []struct{ kind, spec, want string }{ // want is empty: the value is accepted
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a, port: {number: eighty}}}]}]}", `spec.http[0].route[0].destination.port.number: must be a whole number from 0 to 4294967295, not "eighty"`},
		{"VirtualService", `{hosts: [a], http: [{route: [{destination: {host: a, port: {number: "80"}}}]}]}`, ""},
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a, port: {number: 8.0e1}}}]}]}", ""},
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}, weight: 1.5}]}]}", "spec.http[0].route[0].weight: must be a whole number"},
		{"VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}, weight: 4294967296}]}]}", "spec.http[0].route[0].weight: must be a whole number"},
		{"VirtualService", `{hosts: [a], http: [{route: [{destination: {host: a}, weight: "0x10"}]}]}`, "spec.http[0].route[0].weight: must be a whole number"},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {prefix: /a, exact: /b}}], route: [{destination: {host: a}}]}]}", "spec.http[0].match[0].uri.prefix: cannot be combined with exact"},
		{"VirtualService", "{hosts: [a], http: [{match: [{uri: {prefix: /a, exact: null}}], route: [{destination: {host: a}}]}]}", ""},
		{"VirtualService", "{hosts: [a], exportTo: [b], export_to: [c], http: [{route: [{destination: {host: a}}]}]}", "spec.export_to: cannot be combined with exportTo"},
		{"DestinationRule", "{host: a, trafficPolicy: {outlierDetection: {consecutive5xxErrors: lots}}}", `spec.trafficPolicy.outlierDetection.consecutive5xxErrors: must be a whole number`},
		{"DestinationRule", "{host: a, trafficPolicy: {outlierDetection: {consecutive5xxErrors: {value: 5}}}}", "spec.trafficPolicy.outlierDetection.consecutive5xxErrors: must be a number, not an object"},
		{"DestinationRule", "{host: a, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}}}", ""},
		{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {simple: 77}}}", "spec.trafficPolicy.loadBalancer.simple: unknown value 77"},
		{"DestinationRule", "{host: a, trafficPolicy: {loadBalancer: {simple: 4}}}", ""},
		{"PeerAuthentication", "{selector: {matchLabels: {a: b}}, portLevelMtls: {http: {mode: STRICT}}}", "spec.portLevelMtls[http]: must be a whole number"},
		{"Telemetry", "{tracing: [{randomSamplingPercentage: all}]}", `spec.tracing[0].randomSamplingPercentage: must be a number, not "all"`},
		{"Telemetry", "{tracing: [{randomSamplingPercentage: 1e400}]}", `spec.tracing[0].randomSamplingPercentage: must be a number`},
		{"Telemetry", "{tracing: [{randomSamplingPercentage: 0.5}]}", ""},
		{"Telemetry", `{accessLogging: [{disabled: "no"}]}`, `spec.accessLogging[0].disabled: must be true or false, not "no"`},
		{"EnvoyFilter", "{priority: high, configPatches: []}", "spec.priority: must be a whole number"},
	} {
		said := ""
		for _, p := range testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{}).Problems {
			if p.Severity == "error" {
				said += p.Field + ": " + p.Message + "\n"
			}
		}
		if (c.want == "") != (said == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s %s: %q, want %q", c.kind, c.spec, said, c.want)
		}
	}
}

// A principal is written without a scheme; with a scheme it matches no identity in any field.
func TestIdentitiesWithAScheme(t *testing.T) {
	const id = "spiffe://cluster.local/ns/a/sa/b"
	for spec, want := range map[string]string{
		"{rules: [{from: [{source: {principals: [" + id + "]}}]}]}":                         `spec.rules[0].from[0].source.principals[0]: "` + id + `" matches no identity: write it without the scheme, as "cluster.local/ns/a/sa/b"`,
		"{rules: [{from: [{source: {notPrincipals: [a, 'SPIFFE://*']}}]}]}":                 "spec.rules[0].from[0].source.notPrincipals[1]: ",
		"{rules: [{from: [{source: {trustDomains: ['spiffe://td']}}]}]}":                    "spec.rules[0].from[0].source.trustDomains[0]: ",
		"{rules: [{when: [{key: source.principal, notValues: [" + id + "]}]}]}":             "spec.rules[0].when[0].notValues[0]: ",
		"{rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/b, '*', 'a*']}}]}]}": "",
		"{rules: [{from: [{source: {requestPrincipals: ['https://issuer/sub']}}]}]}":        "",
		"{rules: [{when: [{key: 'request.headers[x]', values: ['spiffe://a']}]}]}":          "",
	} {
		said := ""
		for _, p := range testNormal.Object(read(t, istio("AuthorizationPolicy", spec)), &fake{}).Problems {
			said += p.Field + ": " + p.Message + "\n"
		}
		if (want == "") != (said == "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", spec, said, want)
		}
	}
}

// A value of a policy has one wildcard, at its beginning or else at its end, and service accounts have no wildcards.
// Any other * is reported, because a DENY rule with it denies nothing.
func TestStarsThatAreNoWildcards(t *testing.T) {
	const from, to, itself = "spec.rules[0].from[0].source.", "spec.rules[0].to[0].operation.", "this one stands for itself"
	source := func(text string) string { return "{rules: [{from: [{source: {" + text + "}}]}]}" }
	operation := func(text string) string { return "{rules: [{to: [{operation: {" + text + "}}]}]}" }
	for spec, want := range map[string]string{
		source("principals: [a, cluster.local/ns/*/sa/b]"):                              from + `principals[1]: "cluster.local/ns/*/sa/b": `,
		source("notPrincipals: ['*a/ns/b/sa/*']"):                                       from + `notPrincipals[0]: "*a/ns/b/sa/*": `,
		source("trustDomains: ['*a*']"):                                                 from + "trustDomains[0]: ",
		source("requestPrincipals: ['iss*/sub']"):                                       from + "requestPrincipals[0]: ",
		source("serviceAccounts: [a, a/*]"):                                             from + `serviceAccounts[1]: "a/*": service accounts have no wildcards; `,
		operation("hosts: ['a.*.example']"):                                             to + "hosts[0]: ",
		operation("notMethods: ['*E*']"):                                                to + "notMethods[0]: ",
		operation("paths: [/a/*/b]"):                                                    to + "paths[0]: ",
		"{rules: [{when: [{key: source.principal, notValues: ['a/*/b']}]}]}":            "spec.rules[0].when[0].notValues[0]: ",
		"{rules: [{when: [{key: source.serviceAccount, values: ['*']}]}]}":              "spec.rules[0].when[0].values[0]: ",
		"{rules: [{when: [{key: source.namespace, values: ['a*b*']}]}]}":                "",
		"{rules: [{when: [{key: 'request.headers[accept]', values: ['text/*;q=*']}]}]}": "",
		source("principals: ['*', 'a*', '*a'], namespaces: ['*a*']"):                    "",
		operation("paths: ['/a/{*}/b', '*', '/a*', '*/a', '**']"):                       to + "paths[4]: ",
	} {
		said := ""
		for _, p := range testNormal.Object(read(t, istio("AuthorizationPolicy", spec)), &fake{}).Problems {
			said += p.Field + ": " + p.Message + "\n"
		}
		if (want == "") != (said == "") || !strings.HasPrefix(said, want) || strings.Count(said, "\n") > 1 || want != "" && !strings.Contains(said, itself) {
			t.Errorf("%s: %q, want %q", spec, said, want)
		}
	}
}
