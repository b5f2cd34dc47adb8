package image

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	table := Table{"docker.io/istio/proxyv2": {Dir: "full"}, "proxyv2": {Dir: "short"}, "app": {Dir: "app"}, "app:next": {Dir: "next"}, "broken": {Programs: map[string]string{"/app": "/no/such/program"}}}
	for name, want := range map[string]string{"docker.io/istio/proxyv2:1.31": "full", "registry.example.com:5000/team/proxyv2": "short", "app@sha256:0123": "app", "example.com:5000/app:v1": "app", "example.com:5000/app:next@sha256:0123": "next",
		"shell": "", "none": "refused", "broken": "refused"} {
		i, err := table.Find(name)
		if got := i.Dir; (err != nil) != (want == "refused") || err == nil && got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

// An image contains all of its programs, and runs the first one. A missing program is named.
func TestOf(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table, err := Of(map[string][]string{"agent": {"agent", "envoy"}}, map[string]string{"agent": self, "envoy": self})
	if got := table["agent"]; err != nil || !slices.Equal(got.Entrypoint, []string{"/usr/local/bin/agent"}) || got.Programs["/usr/local/bin/envoy"] != self || len(got.Programs) != 2 {
		t.Errorf("%+v %v", table, err)
	}
	for _, local := range []map[string]string{{"agent": self}, {"agent": self, "envoy": self + "-none"}} {
		if _, err := Of(map[string][]string{"agent": {"agent", "envoy"}}, local); err == nil || !strings.Contains(err.Error(), `"envoy"`) {
			t.Errorf("%v: %v", local, err)
		}
	}
}

func TestArgs(t *testing.T) {
	i := Image{Entrypoint: []string{"/app"}, Cmd: []string{"serve"}}
	for _, test := range []struct{ command, args, want []string }{{nil, nil, []string{"/app", "serve"}}, {nil, []string{"x"}, []string{"/app", "x"}}, {[]string{"/c"}, nil, []string{"/c"}},
		{[]string{"/c"}, []string{"x"}, []string{"/c", "x"}}} {
		if got, err := i.Args(test.command, test.args); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q %q: %q %v, want %q", test.command, test.args, got, err, test.want)
		}
	}
	if got, err := (Image{}).Args(nil, nil); err == nil {
		t.Errorf("nothing to run: %q", got)
	}
}
