package main

import (
	"strings"
	"testing"
)

// Settings that require a decision are printed first, and make the command fail, as unknown settings do. The values
// contain neither.
func TestMigrateValuesSaysWhatIsToDecide(t *testing.T) {
	const external = "global: {caAddress: \"csr:443\"}\nenv: {ENABLE_CA_SERVER: \"false\", GOGC: 50}\ntraceSampling: 5\n"
	out, said, err := runCommand(t, external, "migrate", "values", "-", "-o", "yaml")
	if out != "env:\n  GOGC: 50\n" || err == nil || err.Error() != "settings to decide: 2; not acted on: 1" {
		t.Errorf("%q, %v", out, err)
	}
	lines := strings.Split(said, "\n")
	for i, want := range []string{"global.caAddress", "ENABLE_CA_SERVER", "traceSampling"} {
		if len(lines) < i+3 || !strings.Contains(lines[i+2], " "+want+" ") || i < 2 && !(strings.Contains(lines[i+2], " decide ") && strings.Contains(lines[i+2], "issuer.kind: other")) {
			t.Errorf("line %d is not about %s:\n%s", i, want, said)
		}
	}
	for format, given := range map[string]string{"short": "nobodyKnows: 1", "json": "global: {tag: x}"} {
		if _, _, err := runCommand(t, given, "migrate", "values", "-", "-o", format); err == nil {
			t.Errorf("%s passes with %s", given, format)
		}
	}
	if _, said, err := runCommand(t, "revision: canary\nownerName: x", "migrate", "values", "-", "-o", "yaml"); err != nil || !strings.Contains(said, "ownerName") {
		t.Errorf("%v %s", err, said)
	}
}
