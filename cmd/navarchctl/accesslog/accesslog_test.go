package accesslog

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	denied = `[2026-11-29T10:00:00.123Z] "GET /v2/x?y=1 HTTP/1.1" 403 - rbac_access_denied_matched_policy[ns[shop]-policy[p]-rule[0]] - "-" 0 19 1 - ` +
		`"10.1.0.9" "curl/8.0 (x y)" "0a1b" "api.shop:80" "-" inbound|8080|| - 10.1.0.1:8080 10.1.0.9:40000 outbound_.80_._.api.shop.svc.cluster.local default`
	failed = `[2026-11-29T10:00:00.123Z] "- - -" 0 UF,URX - - "TLS_error:|268435581:SSL routines: CERTIFICATE_VERIFY_FAILED" 0 0 1 - ` +
		`"-" "-" "-" "-" "10.1.0.1:9000" outbound|9000||db.shop.svc.cluster.local - 10.96.0.9:9000 10.1.0.9:40000 - -`
)

func TestParse(t *testing.T) {
	e, err := Parse(denied + "\n")
	want := Entry{Method: "GET", Path: "/v2/x?y=1", Protocol: "HTTP/1.1", Status: 403,
		Details:      "rbac_access_denied_matched_policy[ns[shop]-policy[p]-rule[0]]",
		ForwardedFor: "10.1.0.9", Authority: "api.shop:80", Cluster: "inbound|8080||", Local: "10.1.0.1:8080", Remote: "10.1.0.9:40000",
		ServerName: "outbound_.80_._.api.shop.svc.cluster.local", Route: "default"}
	if err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("%v\n%+v, want\n%+v", err, e, want)
	}
	if e.Denied() != "ns[shop]-policy[p]-rule[0]" || !e.Inbound() {
		t.Errorf("denied by %q, inbound %v", e.Denied(), e.Inbound())
	}
	e, err = Parse(failed)
	if err != nil || !slices.Equal(e.Flags, []string{"UF", "URX"}) || !strings.HasPrefix(e.Failure, "TLS_error") ||
		e.Method != "" || e.Inbound() || e.Denied() != "" {
		t.Errorf("%v %+v", err, e)
	}
	for line, want := range map[string]string{
		"":                                       "0 fields",
		"GET / 200":                              "3 fields",
		"[2026":                                  "field 1: ] is missing",
		`[2026]"GET`:                             "a blank is missing",
		denied + " more":                         "fields",
		strings.Repeat("x", longest+1):           "bytes",
		strings.Replace(denied, "403", "4x3", 1): `status "4x3"`,
		strings.Replace(denied, " HTTP/1.1", "", 1):  "METHOD PATH PROTOCOL",
		strings.Replace(denied, "(x y)", `x" "y`, 1): "fields", // a client's header that forges fields
	} {
		if _, err := Parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", line, err, want)
		}
	}
}

// The client's address is that of either family, without the port.
func TestClient(t *testing.T) {
	for remote, want := range map[string]string{"10.1.0.9:40000": "10.1.0.9", "[2001:db8::1]:4711": "2001:db8::1", "": "", "envoy://x/": ""} {
		if got := (Entry{Remote: remote}).Client(); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}

func TestFlags(t *testing.T) {
	if !slices.IsSortedFunc(Flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the flags are not sorted")
	}
	if f, ok := Explain("UH"); !ok || f.Means != "no endpoint is healthy" {
		t.Error(f, ok)
	}
	if _, ok := Explain("XX"); ok {
		t.Error("XX is no flag")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(denied)
	f.Add(failed)
	f.Fuzz(func(t *testing.T, line string) {
		if e, err := Parse(line); err == nil && (e.Status < 0 || e.Status > 999) {
			t.Errorf("%+v", e)
		}
	})
}
