package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named matches packages and tests in a page, as in: `push/serve` `TestOne`, `TestOther`.
var named = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9-]+)+)`|`(Test[A-Za-z0-9]+)`")

// Every test that ARCHITECTURE.md and PROMISES.md name exists in the package before it.
func TestPagesNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	tests := map[string]map[string]bool{}
	for _, page := range []string{"ARCHITECTURE.md", "cmd/internal/e2e/PROMISES.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			folder := ""
			for _, found := range named.FindAllStringSubmatch(line, -1) {
				if found[1] != "" {
					folder = found[1]
					continue
				}
				if folder == "" {
					continue // a test is spoken of, and its package stands elsewhere
				}
				if tests[folder] == nil {
					tests[folder] = testsOf(t, filepath.Join(root, folder))
				}
				if !tests[folder][found[2]] {
					t.Errorf("%s:%d: %s has no %s", page, i+1, folder, found[2])
				}
			}
		}
	}
}

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				all[f.Name.Name] = true
			}
		}
	}
	return all
}

// quoted are the code spans of a page; pathLike those that name a file or a folder of the repository.
var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	pathLike = regexp.MustCompile(`^(?:[\w.-]+/)*[\w.-]+\.(?:go|md|txt|proto)$|^(?:store|push|shard|ca|cmd|loadtest|deploy)/[\w./*-]*$`)
)

// notThere are folders that ARCHITECTURE.md lists as planned.
var notThere = []string{"store/source/kube"}

// missingFiles returns the files and folders that a paragraph (or a row of a table) names and that do not exist. A name
// without a folder may be in any folder that the paragraph names.
func missingFiles(root, paragraph string) (missing []string) {
	folders := []string{"."}
	exists := func(path string) bool {
		found, err := filepath.Glob(filepath.Join(root, path))
		return err == nil && len(found) > 0
	}
	var names []string
	for _, match := range quoted.FindAllStringSubmatch(paragraph, -1) {
		name := strings.TrimSuffix(match[1], "/")
		if !pathLike.MatchString(name) || slices.Contains(notThere, name) {
			continue
		}
		if names = append(names, name); filepath.Ext(name) == "" {
			folders = append(folders, name)
		} else {
			folders = append(folders, filepath.Dir(name))
		}
	}
	for _, name := range names {
		if !exists(name) && !slices.ContainsFunc(folders, func(folder string) bool { return !strings.Contains(name, "/") && exists(folder+"/"+name) }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Every file that ARCHITECTURE.md names exists.
func TestArchitectureNamesFiles(t *testing.T) {
	const root = "../../.."
	raw, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\n|", "\n\n|"), "\n\n") {
		named += len(quoted.FindAllString(paragraph, -1))
		for _, name := range missingFiles(root, paragraph) {
			t.Errorf("ARCHITECTURE.md names %s, which is not there: %.100q", name, paragraph)
		}
	}
	if named < 200 {
		t.Errorf("%d names were found: the test does not read the page any more", named)
	}
	for paragraph, want := range map[string]string{
		"(`push/plan/no_such.go`)":                           "push/plan/no_such.go",
		"`push/plan` keeps it (`no_such.go`)":                "no_such.go",
		"`loop.go` of nowhere":                               "loop.go",
		"`push/nowhere` owns it":                             "push/nowhere",
		"`push/plan/planner.go`, `loop.go`, `push/build/*`,": "",
	} {
		if got := strings.Join(missingFiles(root, paragraph), " "); got != want {
			t.Errorf("%s: %q is missing, want %q", paragraph, got, want)
		}
	}
}

// Every package has a page: `make packages` prints its first sentence.
func TestPackagesHavePages(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && !strings.HasPrefix(p.Doc, "Package "+p.Name+" ") && !strings.HasPrefix(p.Doc, "Command ") {
			t.Errorf("%s has no package comment that begins with its name: %q", p.ImportPath, p.Doc)
		}
	}
}

// ARCHITECTURE.md has at most 40 KB, so that it can be read at once.
func TestArchitectureIsShort(t *testing.T) {
	const most = 40 << 10
	if page, err := os.Stat("../../../ARCHITECTURE.md"); err != nil || page.Size() > most {
		t.Errorf("%v, or more than %d bytes", err, most)
	}
}

// pageLink matches a link from one page for operators to another.
var pageLink = regexp.MustCompile(`\]\(([a-z-]+\.md)`)

// README links every page for operators, or a page that links it, and has at most 200 lines.
func TestReadmeLeadsToEveryPage(t *testing.T) {
	const root, most = "../../..", 200
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "deploy/docs/*.md"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	linked := map[string]bool{}
	for _, page := range pages {
		if !strings.Contains(string(readme), "](deploy/docs/"+filepath.Base(page)) {
			continue
		}
		linked[filepath.Base(page)] = true
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range pageLink.FindAllStringSubmatch(string(text), -1) {
			linked[link[1]] = true
		}
	}
	for _, page := range pages {
		if !linked[filepath.Base(page)] {
			t.Errorf("neither README.md nor a page that it links has a link to %s", filepath.Base(page))
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > most {
		t.Errorf("README.md has %d lines, at most %d", lines, most)
	}
}
