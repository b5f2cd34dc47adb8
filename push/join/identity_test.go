package join

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/view"
)

// An identity may request proxies of its own namespace and service account; a node without an account may be of any in
// its namespace. The trust domain does not matter here, because authentication has decided on aliases and other trusted
// meshes.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#what-it-says-of-itself
func TestCheck(t *testing.T) {
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	for _, c := range []struct {
		what, identity, namespace, account string
		want                               string // of the error; empty: it may
	}{
		{"its own", web, "shop", "web", ""},
		{"no account is named", web, "shop", "", ""},
		{"another namespace", web, "pay", "web", "may not ask"},
		{"another namespace without an account", web, "pay", "", "may not ask"},
		{"another account", web, "shop", "db", "may not ask"},
		{"no namespace", web, "", "web", "may not ask"},
		{"a namespace that begins alike", web, "shopping", "web", "may not ask"},
		{"another trust domain", "spiffe://old.example/ns/shop/sa/web", "shop", "web", ""},
		{"not a workload's", "spiffe://cluster.local/shop", "shop", "web", "identity"},
		{"without an account", "spiffe://cluster.local/ns/shop", "shop", "", "identity"},
		{"more than an account", web + "/x", "shop", "web", "identity"},
		{"no SPIFFE ID", "https://cluster.local/ns/shop/sa/web", "shop", "web", "no SPIFFE ID"},
		{"nobody, on plain text", "", "shop", "web", ""},
	} {
		node := view.Node{Namespace: c.namespace, Account: c.account}
		err := Planner{Checked: true}.check(c.identity, node)
		if (err != nil) != (c.want != "") || err != nil && (status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := (Planner{}).check(c.identity, node); err != nil {
			t.Errorf("%s, and nobody is checked (PILOT_ENABLE_XDS_IDENTITY_CHECK=false): %v", c.what, err)
		}
	}
}

// An identity proves its own service account if it is of our trust domain, and no other.
func TestVerified(t *testing.T) {
	none := view.Identity{}.String()
	for _, c := range []struct {
		identity, want string
		bad            bool
	}{
		{"spiffe://mesh.example/ns/shop/sa/gateway", "service account shop/gateway", false},
		{"", none, false}, // plain text
		{"spiffe://other.example/ns/shop/sa/gateway", none, true},
		{"spiffe://mesh.example/shop", none, true},
		{"spiffe://mesh.example/ns/shop", none, true},
		{"spiffe://mesh.example", none, true},
		{"https://mesh.example/ns/shop/sa/gateway", none, true},
		{"gateway.shop", none, true},
	} {
		if got, err := Verified(c.identity, "mesh.example"); got.String() != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %q %v", c.identity, got, err)
		}
	}
}
