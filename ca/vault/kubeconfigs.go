package vault

import (
	"context"

	"navarch.io/navarch/ca/seal"
)

// purposeKubeconfig is associated data, with the mesh and the name of the cluster.
const purposeKubeconfig = "kubeconfig"

// Kubeconfigs seals the credentials of other clusters: the leader, which reads them, for the processes that ask these
// clusters about identities.
type Kubeconfigs struct {
	Sealer seal.Sealer
	Mesh   string
}

func (k Kubeconfigs) about(cluster string) seal.Context {
	return seal.Context{Mesh: k.Mesh, KeyID: cluster, Purpose: purposeKubeconfig}
}

// Seal encrypts the credentials of a cluster. Errors are those of seal.Sealer, as those of Open and Stale are.
func (k Kubeconfigs) Seal(ctx context.Context, cluster string, plain []byte) ([]byte, error) {
	return k.Sealer.Seal(ctx, plain, k.about(cluster))
}

// Open is the inverse. seal.ErrTampered: it was sealed for another cluster or mesh.
func (k Kubeconfigs) Open(ctx context.Context, cluster string, sealed []byte) ([]byte, error) {
	plain, err := k.Sealer.Open(ctx, sealed, k.about(cluster))
	return plain, err
}

// Stale returns whether something is sealed under another key encryption key than the one in use. An error: the
// provider does not answer (seal.ErrUnavailable).
func (k Kubeconfigs) Stale(ctx context.Context) (func(sealed []byte) bool, error) {
	return k.Sealer.Stale(ctx)
}
