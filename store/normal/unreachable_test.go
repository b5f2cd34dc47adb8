package normal

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"navarch.io/navarch/store/problem"
)

// found is the problems that Istio's analyzers have a code for, as "code field"; all of them have to be warnings.
func found(t *testing.T, n *Normalizer, text string) string {
	t.Helper()
	r := n.Object(read(t, text), &fake{})
	if r.Spoiled {
		t.Fatalf("%s: %v", text, r.Problems)
	}
	var out []string
	for _, p := range r.Problems {
		if p.Analyzer == "" {
			continue
		}
		if p.Severity != problem.Warning || p.Analyzer.Name() == "" {
			t.Errorf("%s: %v is an error, or has a code without a name", text, p)
		}
		out = append(out, string(p.Analyzer)+" "+p.Field)
	}
	return strings.Join(out, "\n")
}

// Rules and matches that earlier ones cover, and similar ones that they do not cover.
func TestUnreachableRules(t *testing.T) {
	rule := func(match string) string {
		if match != "" && match[0] != '{' {
			match = "{" + match + "}"
		}
		return "{match: [" + match + "], route: [{destination: {host: a}}]}"
	}
	http := func(matches ...string) string {
		var rules []string
		for _, m := range matches {
			rules = append(rules, rule(m))
		}
		return "http: [" + strings.Join(rules, ", ") + "]"
	}
	const unreachable, ineffective = "IST0130 spec.", "IST0131 spec."
	for spec, want := range map[string]string{
		http("", ""):                          unreachable + "http[1]",
		http("", "", ""):                      unreachable + "http[1]\n" + unreachable + "http[2]",
		http("uri: {prefix: /}", ""):          unreachable + "http[1]",
		http("name: all", "uri: {exact: /a}"): unreachable + "http[1]",
		http("", "uri: {exact: /a}"):          unreachable + "http[1]",
		http("uri: {exact: /a}", ""):          "",
		http("uri: {exact: /a}", "{uri: {exact: /a}}, {uri: {exact: /b}}"):                                  ineffective + "http[1].match[0]",
		http("uri: {exact: /a}", "uri: {exact: /a}, name: x"):                                               ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("uri: {exact: /a}", "uri: {exact: /b}", "uri: {exact: /b}"):                                    ineffective + "http[2].match[0]\n" + unreachable + "http[2]",
		http("uri: {prefix: /a}", "uri: {prefix: /a/b}"):                                                    ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("uri: {prefix: /a}", "uri: {exact: /ab}"):                                                      ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("uri: {prefix: /a/b}", "uri: {prefix: /a}"):                                                    "",
		http("uri: {prefix: /a}", "uri: {regex: '/a.*'}"):                                                   "",
		http("uri: {prefix: /a}", "uri: {prefix: /A}, ignoreUriCase: true"):                                 "",
		http("uri: {prefix: /}", "ignoreUriCase: true, uri: {prefix: /A}"):                                  unreachable + "http[1]",
		http("method: {prefix: /}", "uri: {prefix: /A}"):                                                    "",
		http("headers: {x: {exact: a}}", "headers: {x: {exact: a}, y: {exact: b}}"):                         ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("headers: {x: {exact: a}, y: {exact: b}}", "headers: {x: {exact: a}}"):                         "",
		http("headers: {x: {}}", "headers: {x: {}}, port: 80"):                                              ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("withoutHeaders: {x: {exact: a}}", "uri: {exact: /a}"):                                         "",
		http("withoutHeaders: {x: {exact: a}}", "withoutHeaders: {x: {exact: a}}, uri: {exact: /a}"):        ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("port: 80", "port: 81"):                                                                        "",
		http("sourceLabels: {app: x}", "sourceLabels: {app: x, v: z}"):                                      ineffective + "http[1].match[0]\n" + unreachable + "http[1]",
		http("sourceLabels: {app: x}", "uri: {exact: /a}"):                                                  "",
		http("sourceNamespace: shop", "uri: {exact: /a}"):                                                   "",
		http("gateways: [mesh]", "uri: {exact: /a}"):                                                        "",
		http("queryParams: {q: {exact: a}}", "uri: {exact: /a}"):                                            "",
		"http: [{delegate: {name: one}}, {delegate: {name: two}}]":                                          "",
		"http: [{delegate: {name: one}}, " + rule("") + ", {delegate: {name: two}}]":                        "IST0130 spec.http[2]",
		"tcp: [{route: [{destination: {host: a}}]}, " + rule("port: 80") + "]":                              unreachable + "tcp[1]",
		"tcp: [" + rule("port: 80") + ", " + rule("port: 80") + ", " + rule("port: 81") + "]":               ineffective + "tcp[1].match[0]\n" + unreachable + "tcp[1]",
		"tls: [" + rule("sniHosts: [a]") + ", " + rule("{sniHosts: [a]}, {sniHosts: [a], port: 443}") + "]": ineffective + "tls[1].match[0]",
	} {
		if got := found(t, testNormal, istio("VirtualService", "{hosts: [a], "+spec+"}")); got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", spec, got, want)
		}
	}
}

// For any number of rules, each is compared with a bounded number of others; a match of everything is found beyond that
// number too.
func TestManyRules(t *testing.T) {
	var rules []string
	for i := range 3000 {
		rules = append(rules, fmt.Sprintf("{match: [{uri: {exact: /%d}}], route: [{destination: {host: a}}]}", i))
	}
	rules = append(rules, "{route: [{destination: {host: a}}]}", "{match: [{uri: {exact: /x}}], route: [{destination: {host: a}}]}")
	if got := found(t, testNormal, istio("VirtualService", "{hosts: [a], http: ["+strings.Join(rules, ", ")+"]}")); got != "IST0130 spec.http[3001]" {
		t.Errorf("got %s", got)
	}
}

// Further problems of one object for which Istio's analyzers have a code.
func TestAnalyzersCodes(t *testing.T) {
	automatic := New(Options{Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}})
	tcp := istio("ServiceEntry", "{hosts: [a.example.com], ports: [{number: 80, name: a, protocol: TCP}, {number: 81, name: b, protocol: HTTP}, {number: 82, name: c}], resolution: DNS}")
	annotated := func(name string) string {
		return strings.Replace(istio("Sidecar", "{}"), "metadata: {", "metadata: {annotations: {"+name+": x}, ", 1)
	}
	inRoot := func(spec string) string { return strings.Replace(istio("Telemetry", spec), "shop", "istio-system", 1) }
	patch := istio("EnvoyFilter", "{configPatches: [{applyTo: CLUSTER, patch: {operation: REPLACE, value: {}}, match: {cluster: {}}}]}")
	for _, c := range []struct {
		n          *Normalizer
		text, want string
	}{
		{testNormal, tcp, "IST0134 spec.ports[0]\nIST0134 spec.ports[2]"},
		{testNormal, strings.Replace(tcp, "hosts:", "addresses: [10.0.0.1], hosts:", 1), ""},
		{automatic, tcp, ""},
		{automatic, strings.Replace(strings.Replace(tcp, "a.example", "'*.example", 1), ".com]", ".com']", 1) + "\n", "IST0134 spec.ports[0]\nIST0134 spec.ports[2]"},
		{testNormal, patch, "IST0152 spec.configPatches[0].patch.operation"},
		{testNormal, strings.ReplaceAll(strings.Replace(patch, "CLUSTER", "HTTP_FILTER", 1), "cluster", "listener"), ""},
		{testNormal, annotated("sidecar.istio.io/injectt"), "IST0108 metadata.annotations[sidecar.istio.io/injectt]"},
		{testNormal, annotated("sidecar.istio.io/inject"), "IST0107 metadata.annotations[sidecar.istio.io/inject]"},
		{testNormal, annotated("galley.istio.io/analyze-suppress"), ""},
		{testNormal, strings.Replace(istio("AuthorizationPolicy", "{}"), "metadata: {", "metadata: {annotations: {istio.io/dry-run: 'true'}, ", 1), ""},
		{testNormal, annotated("install.operator.istio.io/x"), ""},
		{testNormal, annotated("notistio.io/x"), ""},
		{testNormal, istio("Telemetry", "{tracing: [{providers: [{name: lost}]}]}"), "IST0101 spec.tracing[0].providers[0].name"},
		{testNormal, istio("Telemetry", "{tracing: [{providers: [{name: envoy}]}]}"), ""},
		{testNormal, inRoot("{accessLogging: [{match: {mode: SERVER}}]}"), "IST0157 spec.accessLogging[0]"},
		{testNormal, inRoot("{accessLogging: [{disabled: true}]}"), ""},
		{testNormal, inRoot("{accessLogging: [{providers: [{name: envoy}]}, {match: {mode: SERVER}}]}"), ""},
		{testNormal, inRoot("{selector: {matchLabels: {app: a}}, accessLogging: [{match: {mode: SERVER}}]}"), ""},
		{testNormal, istio("Telemetry", "{accessLogging: [{match: {mode: SERVER}}]}"), ""},
		{testNormal, istio("Sidecar", "{workloadSelector: {labels: {app: '-'}}}"), "IST0127 spec.workloadSelector.labels"},
	} {
		text := c.text
		if strings.Contains(text, "'*.example") {
			text = strings.Replace(text, "resolution: DNS", "resolution: NONE", 1)
		}
		if got := found(t, c.n, text); got != c.want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", text, got, c.want)
		}
	}
}
