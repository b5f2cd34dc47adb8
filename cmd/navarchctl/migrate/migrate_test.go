package migrate

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into the page")

const (
	page       = "../../../deploy/docs/migration.md"
	begin, end = "<!-- begin: navarchctl migrate values -->\n", "<!-- end: navarchctl migrate values -->"
)

// The page contains the command's table: `go test ./cmd/navarchctl/migrate -update` writes it.
func TestPageHasTheTable(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + "\n" + Page() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(raw) != want {
		t.Errorf("%s does not have the table of this package: write it with -update", page)
	}
}

// navarchd reads every variable that the table lists as acted on under its own name, and the table lists every variable
// that navarchd reads.
func TestEnvironmentIsNavarchds(t *testing.T) {
	var source strings.Builder
	for _, name := range []string{"environment.go", "flags.go", "issuers.go"} {
		text, err := os.ReadFile("../../navarchd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	reads := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?:parse|envOr)\("([A-Z0-9_]+)"`).FindAllStringSubmatch(source.String(), -1) {
		reads[found[1]] = true
	}
	if len(reads) < 30 {
		t.Fatalf("%d variables are found", len(reads))
	}
	acted := map[string]bool{"GOMEMLIMIT": true, "GOGC": true, "GOMAXPROCS": true, "OTEL_EXPORTER_OTLP_HEADERS": true, "OTEL_EXPORTER_OTLP_CERTIFICATE": true} // Go's, OpenTelemetry's
	for _, r := range environment {
		takes := r.effect == ActedOn || r.effect == Decide || strings.HasPrefix(r.here, "the same; the chart sets it")
		if takes && !reads[r.key] && !acted[r.key] {
			t.Errorf("the table says that %s is acted on, and navarchd does not read it", r.key)
		}
		acted[r.key] = acted[r.key] || takes
	}
	for name := range reads {
		if !acted[name] && !strings.HasPrefix(name, "NAVARCH_") {
			t.Errorf("navarchd reads %s, and the table does not say that it is acted on", name)
		}
	}
}

// Flags of the effect ActedOn exist in navarchd, under the names that the table states.
func TestFlagsAreNavarchds(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(--[a-z-]+)")
	for _, of := range [][]row{flags, environment, values} {
		for _, r := range of {
			for _, flag := range named.FindAllStringSubmatch(r.here, -1) {
				if !strings.Contains(string(text), "`"+flag[1]) {
					t.Errorf("%s: navarchd has no flag %s", r.key, flag[1])
				}
			}
		}
	}
}

// Lines are unique, and have a text without a bar, which would end a cell of the page.
func TestTable(t *testing.T) {
	for sort, rows := range tables {
		seen := map[string]bool{}
		for _, r := range rows {
			if seen[r.key] || r.here == "" || r.same != "" && r.effect != Reported && r.effect != Decide || strings.Contains(r.key+r.here, "|") || !slices.Contains([]Effect{Decide, ActedOn, Reported, NoEffect}, r.effect) {
				t.Errorf("%s: %+v", sort, r)
			}
			seen[r.key] = true
		}
	}
}

func found(t *testing.T, text string) map[string]Effect {
	t.Helper()
	all, err := FromYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]Effect{}
	for _, s := range all {
		effects[string(s.Sort)+" "+s.Key+"="+s.Value] = s.Effect
	}
	return effects
}

// FromYAML accepts values at each of the places that Istio's chart reads, flags and variables in them, a Deployment,
// and an IstioOperator.
func TestFromYAML(t *testing.T) {
	got := found(t, `
pilot:
  autoscaleMin: 2
  env: {PILOT_PUSH_THROTTLE: "50", PILOT_NOBODY_KNOWS: x, NO_SUCH_VARIABLE: z}
  extraContainerArgs: ["--httpAddr=:9", --keepaliveInterval, 30s]
_internal_defaults_do_not_set: {traceSampling: 5, configMap: true}
meshConfig: {accessLogFile: /dev/stdout}
global: {proxy: {autoInject: disabled, logLevel: info, tracer: zipkin}, sds: {token: {aud: other}}, hub: "", imagePullSecrets: [a]}
nobodyKnows: 1
---
kind: Deployment
spec: {template: {spec: {containers: [{name: discovery, args: [discovery, "--monitoringAddr=:15014", --domain, cluster.local, --profile], env: [{name: REVISION, value: canary}, {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}, {name: other, args: ["--x"]}]}}}
---
kind: ConfigMap
data: {revision: x}
---
kind: IstioOperator
spec: {profile: minimal, meshConfig: {rootNamespace: x}, values: {global: {meshID: m}}}
`)
	for setting, want := range map[string]Effect{
		"value autoscaleMin=2":                       ActedOn,
		"environment PILOT_PUSH_THROTTLE=50":         ActedOn,
		"environment PILOT_NOBODY_KNOWS=x":           Reported,
		"environment NO_SUCH_VARIABLE=z":             Reported,
		"flag httpAddr=:9":                           Decide,
		"value configMap=true":                       NoEffect,
		"value traceSampling=5":                      Reported,
		"value meshConfig.accessLogFile=/dev/stdout": ActedOn,
		"value global.proxy.autoInject=disabled":     ActedOn,
		"value global.proxy.logLevel=info":           ActedOn,
		"value global.proxy.tracer=zipkin":           Reported,
		"value global.sds.token.aud=other":           ActedOn,
		"value global.imagePullSecrets=1 entries":    ActedOn,
		"value nobodyKnows=1":                        Reported,
		"flag monitoringAddr=:15014":                 NoEffect,
		"flag domain=cluster.local":                  ActedOn,
		"flag profile=true":                          NoEffect,
		"environment REVISION=canary":                ActedOn,
		"environment POD_NAME=(from elsewhere)":      NoEffect,
		"value meshConfig.rootNamespace=x":           ActedOn,
		"value global.meshID=m":                      ActedOn,
		"operator profile=minimal":                   NoEffect,
		"flag keepaliveInterval=30s":                 NoEffect,
	} {
		if got[setting] != want {
			t.Errorf("%s: %q, want %q", setting, got[setting], want)
		}
		delete(got, setting)
	}
	for setting, effect := range got {
		t.Errorf("also %s: %s", setting, effect)
	}
	if _, err := FromYAML([]byte("a: 1\n---\n[1, 2]")); err == nil || !strings.Contains(err.Error(), "document 2") {
		t.Errorf("a list: %v", err)
	}
}

// A setting is listed once with each value, and the last of several is the one that is carried over.
func TestLastSettingWins(t *testing.T) {
	all, err := FromYAML([]byte(`
env: {REVISION: a}
tolerations: [{key: one}]
---
env: {REVISION: b}
tolerations: [{key: two}]
---
env: {REVISION: a}
`))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, s := range all {
		listed = append(listed, s.Key+"="+s.Value)
	}
	if got := strings.Join(listed, " "); got != "REVISION=b REVISION=a tolerations=1 entries" {
		t.Errorf("listed: %s", got)
	}
	values, rest := Values(all)
	if got := fmt.Sprint(values); len(rest) > 0 || got != "map[revision:a tolerations:[map[key:two]]]" {
		t.Errorf("%s, %+v", got, rest)
	}
}

// Important settings come first, and of two matching lines the longer one applies.
func TestOrder(t *testing.T) {
	all := fromArgs([]string{"--resync=1s", "--httpAddr=:1", "--log_as_json=true", "--shutdownDuration=5s", "discovery"})
	var order []string
	for _, s := range all {
		order = append(order, s.Key)
	}
	if got := strings.Join(order, " "); got != "httpAddr log_as_json shutdownDuration resync" {
		t.Errorf("order %s", got)
	}
	for _, of := range []struct {
		name, value string
		want        Effect
	}{{"PILOT_HTTP10", "true", Reported}, {"PILOT_HTTP10", "false", NoEffect}, {"PILOT_ENABLE_MONGO_FILTER", "false", Reported}, {"PILOT_ENABLE_MONGO_FILTER", "true", NoEffect},
		{"PILOT_ENABLE_ALPN_FILTER", "false", Reported}, {"PILOT_ENABLE_ALPN_FILTER", "true", NoEffect},
		{"PILOT_DISABLE_MX_ALPN", "true", Reported}, {"PILOT_DISABLE_MX_ALPN", "false", NoEffect},
		{"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", "5s", Reported}, {"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", "15s", NoEffect},
		{"PILOT_ENABLE_STRICT_GATEWAY_MERGING", "false", NoEffect}} {
		if s := classify(Setting{Sort: Environment, Key: of.name, Value: of.value}); s.Effect != of.want || strings.Contains(s.Here, "navarchctl render") {
			t.Errorf("%s=%s: %+v, want %s", of.name, of.value, s, of.want)
		}
	}
	tables["test"] = []row{{"a", Reported, "short", ""}, {"a.b", ActedOn, "long", ""}, {"a.*", NoEffect, "any", ""}}
	defer delete(tables, "test")
	for key, want := range map[string]string{"a": "short", "a.b": "long", "a.b.c": "long", "a.x": "any", "ab": unknown} {
		if s := classify(Setting{Sort: "test", Key: key}); s.Here != want {
			t.Errorf("%s: %q, want %q", key, s.Here, want)
		}
	}
	if s := classify(Setting{Sort: Environment, Key: "PILOT_JWT_ENABLE_OTHER"}); !strings.Contains(s.Here, "the leader fetches the keys") {
		t.Errorf("%+v", s)
	}
}

// FromRelease decodes a Helm release from its Secret (helm.sh/helm/v3/pkg/storage/driver/util.go): gzip in base64.
func TestFromRelease(t *testing.T) {
	pack := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return []byte(base64.StdEncoding.EncodeToString(b.Bytes()))
	}
	all, is, err := FromRelease(pack(`{"name": "istiod", "chart": {"metadata": {"name": "istiod"}}, "config": {"revision": "canary"}}`))
	if err != nil || !is || len(all) != 1 || all[0].Key != "revision" || all[0].Effect != ActedOn {
		t.Errorf("%+v %v %v", all, is, err)
	}
	if _, is, err := FromRelease(pack(`{"chart": {"metadata": {"name": "kiali"}}}`)); err != nil || is {
		t.Errorf("another chart: %v %v", is, err)
	}
	for _, wrong := range []string{"?", "aGVsbG8=", string(pack("no JSON"))} {
		if _, _, err := FromRelease([]byte(wrong)); err == nil {
			t.Errorf("%.20q was taken", wrong)
		}
	}
}

// The hub and tag of components.pilot override those of the spec, whatever the order in which the spec's map yields
// them.
func TestComponentOverridesHubAndTag(t *testing.T) {
	for range 50 {
		got := found(t, "{kind: IstioOperator, spec: {hub: a, tag: b, values: {global: {hub: e}}, components: {pilot: {hub: c, tag: d}}}}")
		if len(got) != 2 || got["value global.hub=c"] != Decide || got["value global.tag=d"] != Decide {
			t.Fatalf("%v", got)
		}
	}
}
