package files

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
)

// Objects below a top-level folder cluster=NAME belong to that cluster. All others, and those in a folder with the
// config cluster's own name, belong to the config cluster.
func TestClustersOfAFolder(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", pods("a"))
	put(t, dir+"/cluster=west/a.yaml", pods("a"))
	put(t, dir+"/cluster=west/deep/cluster=north/b.yaml", pods("b"))
	put(t, dir+"/cluster=home/c.yaml", pods("c"))
	put(t, dir+"/sub/cluster=west/d.yaml", pods("d"))
	put(t, dir+"/cluster=west.yaml", pods("e"))
	put(t, dir+"/cluster=we st/f.yaml", pods("f"))
	put(t, dir+"/cluster=/g.yaml", pods("g"))
	got, problems, err := Read(dir, "home", nil)
	do(t, err)
	var names []string
	for _, e := range got {
		if e.Op == object.Put {
			if e.ID != e.Object.ID || e.ID.Origin.Source() != "files" {
				t.Errorf("%v has origin %v", e.ID, e.ID.Origin)
			}
			names = append(names, e.ID.String())
		}
	}
	slices.Sort(names)
	want := []string{"Pod default/a", "Pod default/a in cluster west", "Pod default/b in cluster west", "Pod default/c", "Pod default/d", "Pod default/e"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
	if len(problems) != 2 || !strings.Contains(problems[0].String(), `cluster=/g.yaml: folder "cluster=": "" is no name of a cluster`) ||
		!strings.Contains(problems[1].String(), `folder "cluster=we st": "we st" is no name of a cluster`) {
		t.Errorf("problems %v", problems)
	}
}
