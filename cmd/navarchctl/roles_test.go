package main

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
)

// Every role is printed with all of its permissions, in etcdctl's form; the operators' role may only change the
// promoted revision.
func TestStoreRoles(t *testing.T) {
	var out strings.Builder
	if err := writeRoles(&out, "shop", ""); err != nil {
		t.Fatal(err)
	}
	grants := 0
	for _, r := range storeRoles {
		grants += len(kv.Grants("shop", "", r.role))
		if !strings.Contains(out.String(), "etcdctl role add "+string(r.role)+"\n") {
			t.Errorf("%s is not made", r.role)
		}
	}
	if got := strings.Count(out.String(), "grant-permission"); got != grants || grants < 20 {
		t.Errorf("%d permissions are printed, want %d", got, grants)
	}
	for _, want := range []string{
		"grant-permission navarch-ingest readwrite '/navarch/shop/v1/records/' '/navarch/shop/v1/records0'\n",
		"grant-permission navarch-xds read '/navarch/shop/v1/records/' '/navarch/shop/v1/records0'\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if got := quoted("a'; rm b"); got != `'a'\''; rm b'` {
		t.Errorf("a name of a mesh is a command: %s", got)
	}
	if strings.Count(out.String(), "navarch-operator readwrite") != 1 || !strings.Contains(out.String(), "navarch-operator readwrite '/navarch/shop/v1/promoted/'") {
		t.Error("operators may write something else than which revision is promoted")
	}
	out.Reset()
	if err := writeRoles(&out, "shop", "canary"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"etcdctl role add navarch-ingest-canary\n",
		"grant-permission navarch-ingest-canary readwrite '/navarch/shop/v1/revisions/canary/records/' '/navarch/shop/v1/revisions/canary/records0'\n",
		"grant-permission navarch-ca-canary readwrite '/navarch/shop/v1/keys/' '/navarch/shop/v1/keys0'\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}
