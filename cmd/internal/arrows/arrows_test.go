// Package arrows checks the import arrows between our packages (packages_test.go), the further imports of tests
// (kits_test.go), and the packages that may import certain outside libraries (libraries_test.go). An import that the
// tables do not list is refused. Its tests also compare the pages with the code, and check names and comments for plain
// words.
package arrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "navarch.io/navarch/"

type listed struct {
	ImportPath, Name, Doc string
	GoFiles               []string
	Imports, Deps         []string
	TestImports           []string // of the package's own tests
	XTestImports          []string // of its _test package
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,GoFiles,Imports,Deps,TestImports,XTestImports", module+"...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func row(table map[string][]string, name string) ([]string, bool) {
	if r, ok := table[name]; ok {
		return r, true
	}
	for pattern, r := range table {
		if strings.HasSuffix(pattern, "*") && matches(pattern, name) {
			return r, true
		}
	}
	return nil, false
}

// allowed returns the packages of ours that a package, or its tests, may import; false: the package has no row.
func allowed(from string, tests bool) ([]string, bool) {
	patterns, known := row(may, from)
	patterns = slices.Clone(patterns)
	if tests || !slices.Contains(leaves, from) {
		patterns = append(patterns, everywhere...)
	}
	if more, ok := row(testsMay, from); tests && ok {
		patterns = append(patterns, more...)
	}
	return patterns, known
}

// refusals returns the errors in one package's imports.
func refusals(p listed) []string {
	var bad []string
	from := strings.TrimPrefix(p.ImportPath, module)
	own, known := allowed(from, false)
	if !known {
		return []string{fmt.Sprintf("%s: no row in the table of arrows", from)}
	}
	for _, imported := range p.Imports {
		bad = append(bad, refusal(from, imported, own)...)
	}
	ofTests, _ := allowed(from, true)
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		if to, ours := strings.CutPrefix(imported, module); ours && to != from && !matchesAny(ofTests, to) {
			bad = append(bad, fmt.Sprintf("tests of %s must not import %s", from, to))
		}
	}
	return bad
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// refusal returns the errors of one import by a package that may import the packages in own.
func refusal(from, imported string, own []string) (bad []string) {
	if to, ours := strings.CutPrefix(imported, module); ours {
		if !matchesAny(own, to) {
			bad = append(bad, fmt.Sprintf("%s must not import %s", from, to))
		}
		return bad
	}
	for library, places := range only {
		if (imported == library || strings.HasPrefix(imported, library+"/")) && !matchesAny(places, from) {
			bad = append(bad, fmt.Sprintf("%s must not import %s: it belongs to %v", from, imported, places))
		}
	}
	return bad
}

// unused lists unused arrows: a table that permits more than the code uses does not describe the design.
func unused(all []listed) (bad []string) {
	for _, t := range []struct {
		name    string
		table   map[string][]string
		imports func(listed) []string
	}{
		{"may", may, func(p listed) []string { return p.Imports }},
		{"testsMay", testsMay, func(p listed) []string { return slices.Concat(p.TestImports, p.XTestImports) }},
	} {
		for from, patterns := range t.table {
			var imports []string
			there := false
			for _, p := range all {
				if matches(from, strings.TrimPrefix(p.ImportPath, module)) {
					there = true
					imports = append(imports, t.imports(p)...)
				}
			}
			if !there {
				bad = append(bad, fmt.Sprintf("%s has a row for %s, which is not there", t.name, from))
			}
			for _, pattern := range patterns {
				if !slices.ContainsFunc(imports, func(i string) bool {
					to, ours := strings.CutPrefix(i, module)
					return ours && matches(pattern, to)
				}) {
					bad = append(bad, fmt.Sprintf("%s lets %s import %s, and nothing does", t.name, from, pattern))
				}
			}
		}
	}
	for library, places := range only {
		for _, place := range places {
			if !slices.ContainsFunc(all, func(p listed) bool {
				return matches(place, strings.TrimPrefix(p.ImportPath, module)) && slices.ContainsFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, library) })
			}) {
				bad = append(bad, fmt.Sprintf("only lets %s import %s, and it does not, or is not there", place, library))
			}
		}
	}
	return bad
}

func TestArrows(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		for _, refusal := range refusals(p) {
			t.Error(refusal)
		}
	}
	for _, arrow := range unused(all) {
		t.Error(arrow)
	}
}

// This checks the check itself: imports that must be refused are refused.
func TestArrowsRefuse(t *testing.T) {
	for _, p := range []listed{
		{ImportPath: module + "push/build/cluster", Imports: []string{module + "store/mirror"}},
		{ImportPath: module + "push/build/listener", Imports: []string{module + "push/view"}},
		{ImportPath: module + "store/model", Imports: []string{module + "store/obs"}},
		{ImportPath: module + "push/serve", Imports: []string{"go.etcd.io/etcd/client/v3"}},
		{ImportPath: module + "store/kv", Imports: []string{module + "cmd/navarchd"}},
		{ImportPath: module + "store/unheard", Imports: nil},
		{ImportPath: module + "push/delta", TestImports: []string{module + "push/plan"}},
		{ImportPath: module + "push/delta", XTestImports: []string{module + "store/kv/kvtest"}},
	} {
		if len(refusals(p)) != 1 {
			t.Errorf("%s importing %v: refused %d times, want once", p.ImportPath, p.Imports, len(refusals(p)))
		}
	}
	if got := refusals(listed{ImportPath: module + "push/plan/host", Imports: []string{module + "push/build/cluster", "fmt"}}); got != nil {
		t.Errorf("an allowed arrow was refused: %v", got)
	}
}

// Programs that plan link the Go types that EnvoyFilters may name. Without a type they would refuse patches that name
// it.
func TestProgramsLinkEnvoyTypes(t *testing.T) {
	programs := 0
	for _, p := range packages(t) {
		if p.Name != "main" || !slices.Contains(p.Deps, module+"push/build/patch") {
			continue
		}
		programs++
		if !slices.Contains(p.Deps, module+"push/build/patch/envoytypes") {
			t.Errorf("%s must import push/build/patch/envoytypes", p.ImportPath)
		}
	}
	if programs < 2 {
		t.Errorf("%d programs plan: navarchd and navarchctl do", programs)
	}
}
