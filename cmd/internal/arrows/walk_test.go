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

// declared returns the names of the functions, methods and types of Go files, each in the forms Name, Type.Name,
// package.Name and package.Type.Name.
func declared(t *testing.T, files []string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		add := func(name string) { names[name], names[file.Name.Name+"."+name] = true, true }
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
					continue
				}
				of := d.Recv.List[0].Type
				if pointer, is := of.(*ast.StarExpr); is {
					of = pointer.X
				}
				switch generic := of.(type) {
				case *ast.IndexExpr:
					of = generic.X
				case *ast.IndexListExpr:
					of = generic.X
				}
				add(of.(*ast.Ident).Name + "." + d.Name.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if of, is := s.(*ast.TypeSpec); is {
						add(of.Name.Name)
					}
				}
			}
		}
	}
	return names
}

// filesOf returns the Go files in a cell of a table: a folder means all of its files, and a name without a folder
// belongs to the previous folder.
func filesOf(root, cell string) (files []string) {
	folder := ""
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		name := strings.TrimSuffix(match[1], "/")
		switch {
		case filepath.Ext(name) == "":
			inside, _ := filepath.Glob(filepath.Join(root, name, "*.go"))
			files = append(files, slices.DeleteFunc(inside, func(f string) bool { return strings.HasSuffix(f, "_test.go") })...)
			folder = name
		case strings.Contains(name, "/"):
			files, folder = append(files, filepath.Join(root, name)), filepath.Dir(name)
		default:
			files = append(files, filepath.Join(root, folder, name))
		}
	}
	return files
}

// missingSteps returns the functions of a row (step, functions, files) that are not declared in its files, and the
// number of all functions of the row.
func missingSteps(t *testing.T, root, row string) (functions int, missing []string) {
	t.Helper()
	cells := strings.Split(strings.Trim(row, "| "), "|")
	if len(cells) != 3 || !strings.Contains(cells[1], "`") {
		return 0, nil
	}
	there := declared(t, filesOf(root, cells[2]))
	for _, match := range quoted.FindAllStringSubmatch(cells[1], -1) {
		if functions++; !there[match[1]] {
			missing = append(missing, match[1])
		}
	}
	return functions, missing
}

// Each row of ARCHITECTURE.md's walk through the code names functions that exist in the files that it names.
func TestWalkNamesFunctions(t *testing.T) {
	const root = "../../.."
	raw, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(raw), "\n## A walk through the code\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	read := 0
	for row := range strings.Lines(walk) {
		if !strings.HasPrefix(row, "|") {
			continue
		}
		n, missing := missingSteps(t, root, strings.TrimSpace(row))
		if read += n; len(missing) > 0 {
			t.Errorf("%v is not there: %s", missing, row)
		}
	}
	if read < 60 {
		t.Errorf("%d functions were found: the test does not read the page any more", read)
	}
	for row, want := range map[string]string{
		"| s | `Queue.Step`, `Queue.Stop` | `push/fanout/queue.go` |": "Queue.Stop",
		"| s | `Queue.Step`, `Loop.Run` | `push/fanout/queue.go` |":   "Loop.Run",
		"| s | `Loop.Run` | `push/fanout/queue.go`, `loop.go` |":      "",
		"| s | `fanout.Loop.Run` | `push/fanout` |":                   "",
	} {
		if _, missing := missingSteps(t, root, row); strings.Join(missing, " ") != want {
			t.Errorf("%s: %v are missing, want %q", row, missing, want)
		}
	}
}

// dotted matches code spans that name something in Go: `package.Name`, `Type.method`, `package.Type.Method`.
var dotted = regexp.MustCompile(`^\w+\.(\w+)(?:\.(\w+))?$`)

// unknownNames returns the dotted code spans of a page that are not identifiers of the repository.
func unknownNames(page string, identifiers map[string]bool) (names int, unknown []string) {
	for _, match := range quoted.FindAllStringSubmatch(page, -1) {
		parts := dotted.FindStringSubmatch(match[1])
		if parts == nil || pathLike.MatchString(match[1]) || strings.HasSuffix(match[1], ".pem") || strings.HasSuffix(match[1], ".yaml") {
			continue
		}
		names++
		for _, part := range parts[1:] {
			if part != "" && !identifiers[part] {
				unknown = append(unknown, match[1])
			}
		}
	}
	return names, unknown
}

// Identifiers that ARCHITECTURE.md names outside of the walk, as package.Name or Type.method, exist in the code.
func TestArchitectureNamesIdentifiers(t *testing.T) {
	const root = "../../.."
	identifiers := map[string]bool{}
	for _, source := range worktree(t, root, "*.go") {
		for _, word := range regexp.MustCompile(`[A-Za-z_]\w*`).FindAllString(string(source), -1) {
			identifiers[word] = true
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	names, unknown := unknownNames(string(page), identifiers)
	if len(unknown) > 0 || names < 100 {
		t.Errorf("of %d names these are not there: %q", names, unknown)
	}
	if _, unknown = unknownNames("`ring.gone`, `Ring.Owner.nothing`, `ring.Owner`, `a/b.go`, `root-cert.pem`", map[string]bool{"Owner": true}); len(unknown) != 2 {
		t.Errorf("what is not there is not found: %q", unknown)
	}
}
