package files

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// allServices is the kind of the tests, in the config cluster.
var allServices = object.ID{Origin: origin.New("", origin.Files), Kind: "Service"}

// What is below a top-level folder cluster=NAME is of that cluster; everything else, and a folder of the config cluster's own name, is of
// the config cluster.
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

// The shrink guard looks at each cluster for itself: a small one's folder that is gone is not taken for removals in a large one.
func TestGuardOfEachCluster(t *testing.T) {
	d := newDesk(t)
	d.lost("a", numbered("Service", "shop", 0, 40), "cluster=west/a", numbered("Service", "shop", 0, 8)+pods("Namespace/shop"))
	if gone, held := d.lost("cluster=west/a", pods("Namespace/shop")); gone != 0 || held != 8 {
		t.Errorf("%d go, %d are held of half of a cluster", gone, held)
	}
	d.lost("cluster=west/a", numbered("Service", "shop", 0, 8)+pods("Namespace/shop"))
	if gone, held := d.lost("cluster=west/a", ""); gone != 0 || held != 9 {
		t.Errorf("%d go, %d are held of a whole cluster", gone, held)
	}
	if gone, held := d.lost("n", pods("Namespace/shop"), "a", numbered("Service", "shop", 0, 39)); gone != 1 || held != 9 {
		t.Errorf("%d go, %d are held after one removal in the other cluster", gone, held)
	}
}
