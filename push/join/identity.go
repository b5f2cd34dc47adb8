package join

import (
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/view"
)

// check compares the caller's identity with the one that its node claims. On plain text there is no identity to
// compare. Errors are gRPC statuses (PermissionDenied).
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

// errForeign states that an identity is of another trust domain, which proves nothing about a namespace of this mesh.
var errForeign = errors.New("of another trust domain")

// Verified returns the service account that an authenticated identity proves; the zero Identity on plain text. Errors:
// the identity is not a SPIFFE ID of a workload, or is of another trust domain.
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
