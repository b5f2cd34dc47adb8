package files

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
)

// Files, folders and the standard input are read together: locations begin with the paths as they are given, and
// sub-folders of a folder name clusters. Of two objects of one name that of the path that sorts first counts.
func TestReadPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: %}}\n"
	one := func(name string) string { return strings.Replace(pod, "%", name, 1) }
	put(t, "dir/a.yaml", one("a")+"---\n"+one("b"))
	put(t, "dir/cluster=west/a.yaml", one("a"))
	put(t, "dir/note.txt", "not read")
	put(t, "other.txt", one("c")+"---\nkind: [\n")
	put(t, "dir/values.json", `{"x": 1}`)
	var skipped []string
	events, problems, err := ReadPaths([]string{"./dir", "./other.txt", "-"}, strings.NewReader(one("a")+"---\n"+one("d")),
		Once{Skipped: func(location string) { skipped = append(skipped, location) }})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if e.Op == object.Put {
			got = append(got, e.ID.String()+" "+e.Object.Location)
		}
	}
	slices.Sort(got)
	want := []string{"Pod default/a -#1", "Pod default/a in cluster west dir/cluster=west/a.yaml#1", "Pod default/b dir/a.yaml#2", "Pod default/c ./other.txt#1", "Pod default/d -#2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var said []string
	for _, p := range problems {
		said = append(said, p.Location+" "+string(p.Code))
	}
	if want := []string{"./other.txt#2 Unreadable", "dir/a.yaml#1 Duplicate"}; !slices.Equal(said, want) || !slices.Equal(skipped, []string{"dir/values.json#1"}) {
		t.Errorf("problems %q, want %q; skipped %q", said, want, skipped)
	}
	for _, path := range []string{"missing", "dir/missing.yaml", "/dev/null"} {
		if _, _, err := ReadPaths([]string{path}, nil, Once{}); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

// Objects that state no namespace are placed in that of the options.
func TestReadPathsInANamespace(t *testing.T) {
	const text = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: default}}\n---\n" +
		"{apiVersion: v1, kind: Pod, metadata: {name: c, namespace: other}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: d}}\n"
	events, _, err := ReadPaths([]string{Stdin}, strings.NewReader(text), Once{Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if e.Op == object.Put {
			got = append(got, e.ID.String())
			if e.Object.ID != e.ID {
				t.Errorf("object %v of event %v", e.Object.ID, e.ID)
			}
		}
	}
	slices.Sort(got)
	if want := []string{"Namespace d", "Pod default/b", "Pod other/c", "Pod shop/a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDocuments(t *testing.T) {
	all := Documents("a.yaml", []byte("# first\na: 1\n---\n\nb: 2\n--- {c: 3}\n"))
	for i, want := range []struct {
		begins string
		line   int
	}{{"# first", 1}, {"\nb: 2", 4}, {" {c: 3}", 6}} {
		if len(all) != 3 || !strings.HasPrefix(string(all[i].Data), want.begins) || all[i].Line != want.line {
			t.Fatalf("document %d of %v: want %v", i+1, all, want)
		}
	}
	if all := Documents("a.json", []byte("\n{\"a\": 1}\n{\"b\": 2}")); len(all) != 2 || string(all[1].Data) != `{"b": 2}` || all[1].Line != 1 {
		t.Errorf("%v", all)
	}
	if all := Documents("a.yaml", nil); len(all) != 1 || all[0].Data != nil {
		t.Errorf("of no data: %v", all)
	}
}

// Files are parsed on all cores. The events and problems are those of one core, in the same order.
func TestManyFilesAreParsedAtOnce(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		text := fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: shop}}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: both}\n", i)
		if i%7 == 0 {
			text += "---\nkind: [\n"
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%02d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(cores int) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		events, problems, err := ReadPaths([]string{dir}, nil, Once{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, e := range events {
			fmt.Fprintln(&out, e.Op, e.ID, e.Problem)
		}
		return out.String() + fmt.Sprint(problems)
	}
	one := read(1)
	if n := strings.Count(one, "Service shop/"); n != 60 {
		t.Fatalf("%d objects:\n%s", n, one)
	}
	for range 5 {
		if got := read(4); got != one {
			t.Fatalf("on four cores\n%s\non one\n%s", got, one)
		}
	}
}
