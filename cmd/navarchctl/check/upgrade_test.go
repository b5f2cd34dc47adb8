package check

import (
	"slices"
	"strings"
	"testing"
)

// upgradeRed runs the checks before an upgrade, and returns the upgrade's checks that are red, sorted.
func upgradeRed(t *testing.T, spoil func(w *world), tool string) (red []Name, all map[string]Result) {
	t.Helper()
	w, leaf := well(t)
	w.answers["/api/v1/namespaces/istio-system/pods"] = strings.Replace(podList(`"--roles=ingest,xds,ca,admit"`, ""), `{"items": [`,
		`{"items": [`+strings.Replace(onePod(), `"a"`, `"b"`, 1)+`, `, 1)
	w.upgrade, w.tool = "1.4.0", tool
	spoil(w)
	all = w.results(t, leaf, false)
	for _, r := range all {
		if strings.HasPrefix(string(r.Name), "upgrade-") && (r.Status == Warning || r.Status == Failure) {
			red = append(red, r.Name)
		}
	}
	slices.Sort(red)
	return red, all
}

// onePod is the Pod of podList.
func onePod() string {
	list := podList(`"--roles=ingest,xds,ca,admit"`, "")
	return strings.TrimSuffix(strings.TrimPrefix(list, `{"items": [`), `]}`)
}

// Before an upgrade, each obstacle turns exactly its check red.
// Promise: checks.md#before-an-upgrade
func TestForUpgrade(t *testing.T) {
	for _, one := range []struct {
		fault string
		spoil func(*world)
		tool  string
		want  []Name
	}{
		{"none", func(*world) {}, "1.4.0", nil},
		{"another tool", func(*world) {}, "1.3.9", []Name{NameUpgradeTool}},
		{"one replica", func(w *world) {
			w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=ingest,xds,ca,admit"`, "")
		}, "1.4.0", []Name{NameUpgradeRoom}},
		{"two versions", func(w *world) { w.versions = []string{"1.3.0", "1.4.0"} }, "1.4.0", []Name{NameUpgradeVersions}},
		{"a version is not known", func(w *world) { w.versions = []string{""} }, "1.4.0", nil},
		{"proxies refuse", func(w *world) {
			w.proxies = `{"partial": [], "sums": {"total": {"in_sync": 7, "behind": 1, "refusing": 2}}}`
		}, "1.4.0", []Name{NameUpgradeFleet}},
		{"a replica does not answer for its proxies", func(w *world) {
			w.proxies = `{"partial": [{"replica": "b"}], "sums": {"total": {"in_sync": 7, "refusing": 2}}}`
		}, "1.4.0", nil},
		{"no API", func(w *world) { w.proxies = "" }, "1.4.0", nil},
	} {
		red, all := upgradeRed(t, one.spoil, one.tool)
		if !slices.Equal(red, one.want) {
			t.Errorf("%s: red are %v, want %v: %+v", one.fault, red, one.want, all)
		}
	}
	_, all := upgradeRed(t, func(w *world) { w.versions = []string{""} }, "1.4.0")
	if all["versions"].Status != Unknown {
		t.Errorf("%+v", all["versions"])
	}
}
