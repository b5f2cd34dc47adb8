package envoytypes_test

import (
	"os/exec"
	"strings"
	"testing"
)

// All packages of Envoy's extensions in the version that go.mod names are linked, also after an update.
func TestAllExtensionsAreLinked(t *testing.T) {
	list := func(args ...string) map[string]bool {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, name := range strings.Fields(string(out)) {
			all[name] = true
		}
		return all
	}
	linked := list("-deps", ".")
	for name := range list("github.com/envoyproxy/go-control-plane/envoy/extensions/...") {
		if !linked[name] {
			t.Errorf("%s is not linked", name)
		}
	}
}
