package join

import (
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/view"
)

// check compares the caller's identity with the namespace and service account that its node claims. If the node states
// no account, only the namespace is compared. check returns nil if identity is empty (plain text) or Checked is false.
// Errors have the gRPC status PermissionDenied.
func (p Planner) check(identity string, node view.Node) error {
	if identity == "" || !p.Checked {
		return nil
	}
	id, err := spiffeid.FromString(identity)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "identity %q is no SPIFFE ID", identity)
	}
	namespace, account, err := attest.ParsePath(id)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "identity %q: %v", identity, err)
	}
	if namespace != node.Namespace || node.Account != "" && account != node.Account {
		return status.Errorf(codes.PermissionDenied, "%s may not ask for a proxy of namespace %q, service account %q", identity, node.Namespace,
			node.Account)
	}
	return nil
}

// errForeign is the error for an identity of another trust domain. The identity proves nothing about a namespace of
// this mesh.
var errForeign = errors.New("of another trust domain")

// Verified returns the namespace and service account that an authenticated identity (a SPIFFE ID) proves. For an empty
// identity, on plain text, it returns the zero Identity and no error. It fails if identity is not a SPIFFE ID, if its
// trust domain is not trustDomain, or if its path is not /ns/NAMESPACE/sa/ACCOUNT. With an error the Identity is zero.
func Verified(identity, trustDomain string) (who view.Identity, err error) {
	if identity == "" {
		return view.Identity{}, nil
	}
	id, err := spiffeid.FromString(identity)
	if err != nil {
		return view.Identity{}, err
	}
	if id.TrustDomain().Name() != trustDomain {
		return view.Identity{}, errForeign
	}
	who.Namespace, who.Account, err = attest.ParsePath(id)
	return who, err
}
