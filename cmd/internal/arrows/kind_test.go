package arrows

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/programs"
)

// maxKindFiles is the largest number of files that a new kind of object may touch. It includes the two files of
// a message of its own.
const maxKindFiles = 20

// place is one of the places that a new kind needs, and the test that names it if it is left out.
type place struct {
	programs.Edit
	test string // package and test; empty: the build fails without the place, or the file is read at run time
	says string // part of the failure
}

// dummyKind adds the kind Dummy of group test.navarch.io: a selector and hosts, in a message of Istio that no other
// kind of record has. No plan reads it.
var dummyKind = []place{
	{edit("store/model/model.go", "\tNumKinds ", "\tKindDummy\n\tNumKinds "), "", ""},
	{edit("store/model/model.go", `{"Secret", "", ""},`, `{"Secret", "", ""}, KindDummy: {"Dummy", "test.navarch.io", ""},`),
		"store/model TestKinds", "has no name"},
	{edit("store/model/record.go", "type (\n", "type (\n\tDummy = Of[*networkingv1.ServiceEntry]\n"), "", ""},
	{edit("store/model/body.go", "= [NumKinds]func() proto.Message{",
		"= [NumKinds]func() proto.Message{KindDummy: func() proto.Message { return &networkingv1.ServiceEntry{} },"),
		"store/model TestHostsOfEveryKind", "Dummy has no body"},
	{edit("store/model/body.go", "switch b := body.(type) {\n\tcase *ServiceSpec:\n\t\treturn", "switch b := body.(type) {\n"+
		"\tcase *networkingv1.ServiceEntry:\n\t\treturn &Dummy{head, b}, nil\n\tcase *ServiceSpec:\n\t\treturn"),
		"store/model TestRoundTrip", "no record type for body *v1alpha3.ServiceEntry"},
	{edit("store/model/mark.go", "Marks = [NumKinds]Mark{", "Marks = [NumKinds]Mark{KindDummy: Skippable,"),
		"store/model TestMarks", "Dummy has no mark"},
	{edit("store/model/hosts.go", "\tcase *DestinationRule:", "\tcase *Dummy:\n\t\treturn t.Spec.GetHosts()\n\tcase *DestinationRule:"),
		"store/model TestHostsOfEveryKind", "Dummy has hosts and is found by"},
	{edit("store/model/level_test.go", "var stored = map[string]string{", `var stored = map[string]string{"Dummy": "skippable 0",`),
		"store/model TestKindsByLevel", "kind Dummy is new"},
	{edit("store/model/level_test.go", "return map[Kind]proto.Message{",
		`return map[Kind]proto.Message{KindDummy: &networkingv1.ServiceEntry{Hosts: []string{"a"}},`),
		"store/model TestRoundTrip", "TestRoundTrip/Dummy"},
	{edit("store/normal/dummy.go", "", dummyRecords), "", ""},
	{edit("store/normal/normal.go", "}{\n\t{\"\", \"Service\"}:", "}{\n\t{\"test.navarch.io\", \"Dummy\"}: {[]string{\"v1\"}, dummyRecords},\n\t{\"\", \"Service\"}:"),
		"store/normal TestKindsOfRecordsAreRead", "Dummy is made of Dummy.test.navarch.io, which is not read"},
	{edit("store/normal/cluster_test.go", "configuration := map[string]string{", `configuration := map[string]string{"Dummy": "hosts: [a]",`),
		"store/normal TestConfigurationComesFromOneCluster", `Dummy of "test.navarch.io" is read from the config cluster alone`},
	{edit("store/source/kube/kinds.go", "known = map[string][]string{", `known = map[string][]string{"test.navarch.io": {"v1"},`),
		"store/source/kube TestGroupsOfRecordsAreDiscovered", "no version of test.navarch.io, the group of Dummy, is read"},
	{edit("push/plan/affects.go", "affects = [model.NumKinds][]effect{", "affects = [model.NumKinds][]effect{model.KindDummy: {},"),
		"push/plan TestEveryKindHasARow", "Dummy has no row in the table of effects"},
	{edit("push/plan/numbered_test.go", "unread := map[model.Kind]string{", `unread := map[model.Kind]string{model.KindDummy: "hosts: [a]",`),
		"push/plan TestWhatNoPlanReadsIsNotPlanned", "Dummy: its row in the table of effects is empty"},
	{edit("push/inspect/istiod.go", "istioKinds = map[model.Kind]string{", `istioKinds = map[model.Kind]string{model.KindDummy: "test.navarch.io/v1",`),
		"push/inspect TestConfigzListsEveryKind", "Dummy: listed by configz: false"},
	{edit("store/status/istio.go", "IstioKinds = []Kind{", `IstioKinds = []Kind{{"test.navarch.io", "Dummy"},`),
		"store/status TestStatusOfEveryKind", "Dummy of test.navarch.io is not among IstioKinds"},
	{edit("cmd/navarchctl/check/rights.go", "clusterRules = []rule{",
		`clusterRules = []rule{{allow("test.navarch.io", []string{"*"}, listWatch), ingest, ""},`),
		"cmd/navarchctl/check TestRightsCoverEveryKind", "no rule lets test.navarch.io, the group of Dummy, be listed"},
	{edit("cmd/navarchctl/check/rights.go", "clusterRules = []rule{",
		`clusterRules = []rule{{allow("test.navarch.io", []string{"dummies/status"}, []string{"update"}), ingest, objectsAre},`),
		"cmd/navarchctl/check TestRightsCoverEveryKind", "no rule lets dummies/status of test.navarch.io be updated"},
	{edit("cmd/navarchctl/check/definitions.go", "resources []string\n}{", "resources []string\n}{\n\t{\"test.navarch.io\", []string{\"v1\"}, []string{\"dummies\"}},"),
		"cmd/navarchctl/check TestRightsCoverEveryKind", "definitions of test.navarch.io, the group of Dummy, are not looked for"},
	// Texts are read at run time, where no overlay is: they lack the places of the kind whenever the code has them.
	{edit("deploy/docs/kubernetes.md", "", ""), "cmd/navarchctl/check TestRightsAreTheDocumented", "test.navarch.io"},
	{edit("deploy/chart/templates/_rights.tpl", "", ""), "", ""}, // a test of the chart compares it with the page
	{edit("store/model/record.proto", "", ""), "", ""},           // of a kind with a message of its own
	{edit("store/model/record.pb.go", "", ""), "", ""},           // make check compares it with record.proto
}

// dummyRecords is the new file of store/normal.
const dummyRecords = `package normal

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

func dummyRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	spec := &networkingv1.ServiceEntry{}
	if !r.spec(obj, spec) {
		return nil
	}
	r.selector("spec.workloadSelector.labels", spec.GetWorkloadSelector().GetLabels())
	return r.record(model.KindDummy, obj, obj.ID.Name, spec)
}
`

func edit(file, text, by string) programs.Edit {
	return programs.Edit{File: file, Text: text, By: by}
}

// A new kind of object touches few files, which are those of the recipe in ARCHITECTURE.md. With all of its places the
// tests of the kinds pass. Without any one of them the test that belongs to it names it.
func TestPlacesOfANewKind(t *testing.T) {
	if testing.Short() {
		t.Skip("builds most packages once more")
	}
	var files, packages, tests []string
	for _, p := range dummyKind {
		file := p.File
		if p.Text == "" && p.By != "" { // a new file: the recipe has its folder
			file = filepath.Dir(file)
		}
		files = append(files, file)
		if in, test, has := strings.Cut(p.test, " "); has && p.By != "" {
			packages, tests = append(packages, "./"+in), append(tests, test)
		}
	}
	slices.Sort(files)
	if files = slices.Compact(files); len(files) > maxKindFiles {
		t.Errorf("a new kind touches %d files, want %d at most: %q", len(files), maxKindFiles, files)
	}
	if recipe := kindRecipe(t); !slices.Equal(recipe, files) {
		t.Errorf("the recipe of ARCHITECTURE.md lists\n%q\nand a new kind touches\n%q", recipe, files)
	}
	slices.Sort(packages)
	if out, err := testKind(t, -1, slices.Compact(packages), tests); err != nil {
		t.Fatalf("the kind has all places, and tests fail: %v\n%s", err, out)
	}
	for i, p := range dummyKind {
		in, test, has := strings.Cut(p.test, " ")
		if !has {
			continue
		}
		t.Run(p.File+"/"+test, func(t *testing.T) {
			t.Parallel()
			if out, err := testKind(t, i, []string{"./" + in}, []string{test}); err == nil || !strings.Contains(out, p.says) {
				t.Errorf("without %q: %v, want a failure with %q:\n%s", p.By, err, p.says, out)
			}
		})
	}
}

// testKind runs tests of packages with the dummy kind, without the place of one index. It returns their output.
func testKind(t *testing.T, without int, packages, tests []string) (string, error) {
	t.Helper()
	var edits []programs.Edit
	for i, p := range dummyKind {
		if i != without && p.By != "" {
			edits = append(edits, p.Edit)
		}
	}
	overlay, err := programs.Overlay(t.TempDir(), edits)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-tags=grpcnotrace", "-overlay=" + overlay, "-run=^(" + strings.Join(tests, "|") + ")$"}
	if without >= 0 {
		args = append(args, "-vet=off")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kindRecipe returns the files in the table of the recipe for a kind of object, in order.
func kindRecipe(t *testing.T) (files []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := bytes.Cut(page, []byte("\n### The files of a new kind\n"))
	if !found {
		t.Fatal("ARCHITECTURE.md has no section \"The files of a new kind\"")
	}
	table, _, _ = bytes.Cut(table, []byte("\n## "))
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "| `") {
			for _, match := range regexp.MustCompile("`([^`]+/[^`]+)`").FindAllStringSubmatch(cells(line)[0], -1) {
				files = append(files, match[1])
			}
		}
	}
	slices.Sort(files)
	return files
}

// cells returns the cells of a row of a table.
func cells(row string) (all []string) {
	for _, cell := range strings.Split(strings.Trim(row, "|"), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}
