package attest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/metadata"
)

// A caller belongs to the cluster whose keys verify its token. Two clusters may have issuers with the same name, keys
// with the same id, and even the same key. So a token is verified only with keys of the cluster that the call names,
// and with keys of issuers without a cluster.

// shown is the cache key of a verified token: the token's SHA-256, and the cluster of its call (clusterOf). If the
// token's issuer has no cluster, the cluster is empty, and the entry is for calls of any cluster.
type shown struct {
	token   [sha256.Size]byte
	cluster string
}

// remembered returns the cached caller of a token that was verified before for calls of this cluster. It removes
// entries that have expired or whose keys were removed.
func (t *Tokens) remembered(token [sha256.Size]byte, cluster string) (Caller, bool) {
	for _, key := range []shown{{token, cluster}, {token, ""}} {
		v, known := t.known.Get(key)
		if !known || key.cluster != cluster && v.caller.Cluster != "" {
			continue
		}
		if !t.cfg.Now().After(v.until) && t.stands(v) {
			return v.caller, true
		}
		t.known.Remove(key)
	}
	return Caller{}, false
}

// remember caches a verified token. If the token's issuer has no cluster, the entry is for calls of all clusters.
func (t *Tokens) remember(token [sha256.Size]byte, cluster string, v verified) {
	if v.caller.Cluster == "" {
		cluster = ""
	}
	t.known.Add(shown{token, cluster}, v)
}

// clusterMetadata is the metadata key by which agents name their cluster (istio:
// security/pkg/nodeagent/caclient/providers/citadel/client.go).
const clusterMetadata = "clusterid"

// clusterOf returns the cluster that a call names. If the call names no cluster, the result is TokensConfig.Cluster. An
// empty result means any cluster. The name is only a claim until that cluster's keys verify a token. The error matches
// ErrMalformed, and means that the call names two clusters.
func (t *Tokens) clusterOf(ctx context.Context) (string, error) {
	said := slices.Compact(metadata.ValueFromIncomingContext(ctx, clusterMetadata))
	switch {
	case len(said) > 1:
		return "", fmt.Errorf("%w: two values of %s", ErrMalformed, clusterMetadata)
	case len(said) == 1 && said[0] != "":
		return said[0], nil
	}
	return t.cfg.Cluster, nil
}

// stands reports whether the key that verified a token is still valid.
func (t *Tokens) stands(v verified) bool {
	if v.remote {
		if now, is := t.cfg.Remote(v.caller.Cluster); !is || now.Keys != v.keys {
			return false
		}
	}
	return v.keys.set.Load().holds(v.keyID, v.print)
}

// signed verifies a token's signature, and returns the cluster of the issuer whose key matches. The issuer's name in
// the token is name. The cluster that the call names is claimed; an empty value means any cluster. signed tries the
// issuers with this name that belong to this cluster or to no cluster. If no key matches, the error is that of one
// issuer: the last error that matches ErrUnavailable, or else the first error.
func (t *Tokens) signed(ctx context.Context, parsed *jwt.JSONWebToken, name, claimed string) (v verified, cluster string, err error) {
	issuers, remote, err := t.named(ctx, name, claimed)
	if len(issuers) == 0 {
		if err == nil {
			err = fmt.Errorf("%w: %.200q", ErrIssuer, name)
		}
		return verified{}, "", err
	}
	head := parsed.Headers[0]
	for _, i := range issuers {
		v := verified{keys: i.Keys, keyID: head.KeyID, remote: remote && i.Cluster == claimed}
		found, fault := i.Keys.find(ctx, head.KeyID)
		if fault == nil {
			fault = checkSignature(parsed, head.Algorithm, found, &v)
		}
		if fault == nil {
			return v, i.Cluster, nil
		}
		if i.Cluster != "" {
			fault = fmt.Errorf("%w (by the keys of cluster %s)", fault, i.Cluster)
		}
		if err == nil || errors.Is(fault, ErrUnavailable) {
			err = fault
		}
	}
	return verified{}, "", err
}

// named returns the issuers with the given name that belong to the cluster claimed or to no cluster. If claimed is
// empty, the issuers may belong to any cluster. The result remote reports whether TokensConfig.Remote knows the
// cluster. The error matches ErrUnavailable. It means that the cluster is unknown and no issuer has the name, or that
// the name of an issuer is not fetched yet. Issuers that are known to have the name are returned even with an error.
func (t *Tokens) named(ctx context.Context, name, claimed string) (all []TokenIssuer, remote bool, err error) {
	speaks := func(i TokenIssuer) bool { return claimed == "" || i.Cluster == "" || i.Cluster == claimed }
	for _, i := range t.issuers[name] {
		if speaks(i) {
			all = append(all, i)
		}
	}
	nameless, given := t.found, len(all) > 0
	if !t.clusters[claimed] && t.cfg.Remote != nil {
		var i TokenIssuer
		if i, remote = t.cfg.Remote(claimed); remote {
			nameless, given = append(nameless[:len(nameless):len(nameless)], i), false
		}
	}
	for _, i := range nameless {
		if !speaks(i) {
			continue
		}
		if !given {
			if fault := i.Keys.learn(ctx, len(all) == 0); fault != nil {
				err = fault
			}
		}
		if i.Keys.Issuer() == name && name != "" {
			all = append(all, i)
		}
	}
	if len(all) == 0 && !t.clusters[claimed] && !remote {
		err = fmt.Errorf("%w: the call is of cluster %.63q (%s), which is not known here", ErrUnavailable, claimed, clusterMetadata)
	}
	return all, remote, err
}
