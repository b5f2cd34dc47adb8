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

// Of which cluster a caller is: of the one whose keys verify its token. Two clusters may have issuers of one name, keys of one id, even one key; so the
// cluster that a call names decides whose keys are looked at, and no other's are.

// shown is a token, and the cluster that a call with it is of; empty: any.
type shown struct {
	token   [sha256.Size]byte
	cluster string
}

// remembered is whom a token names that was verified before, for calls of this cluster.
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

// remember keeps what was verified: once for all calls where the issuer is of no cluster, whatever these say.
func (t *Tokens) remember(token [sha256.Size]byte, cluster string, v verified) {
	if v.caller.Cluster == "" {
		cluster = ""
	}
	t.known.Add(shown{token, cluster}, v)
}

// clusterMetadata is the key by which agents say of which cluster they are (istio: security/pkg/nodeagent/caclient/providers/citadel/client.go).
const clusterMetadata = "clusterid"

// clusterOf is the cluster that a call is of, as it says; empty: any. Only a token that the keys of that cluster verify bears it out.
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

// stands says whether the keys still count by which a token was verified.
func (t *Tokens) stands(v verified) bool {
	if v.remote {
		if now, is := t.cfg.Remote(v.caller.Cluster); !is || now.Keys != v.keys {
			return false
		}
	}
	return v.keys.set.Load().holds(v.keyID, v.print)
}

// signed finds the issuer of a name whose keys verify a token, of those that may speak for a cluster, and the cluster that this is the issuer of. Of
// several errors it is the one of an issuer that cannot tell now, else the first.
func (t *Tokens) signed(ctx context.Context, parsed *jwt.JSONWebToken, name, of string) (v verified, cluster string, err error) {
	issuers, remote, err := t.named(ctx, name, of)
	if len(issuers) == 0 {
		if err == nil {
			err = fmt.Errorf("%w: %.200q", ErrIssuer, name)
		}
		return verified{}, "", err
	}
	head := parsed.Headers[0]
	for _, i := range issuers {
		v := verified{keys: i.Keys, keyID: head.KeyID, remote: remote && i.Cluster == of}
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

// named gives the issuers of a name that may speak for a cluster (of; empty: for whichever), and whether one is of TokensConfig.Remote. The error is
// ErrUnavailable: the cluster is not known, or an issuer's name is not yet, so that it may be this one.
func (t *Tokens) named(ctx context.Context, name, of string) (all []TokenIssuer, remote bool, err error) {
	speaks := func(i TokenIssuer) bool { return of == "" || i.Cluster == "" || i.Cluster == of }
	for _, i := range t.issuers[name] {
		if speaks(i) {
			all = append(all, i)
		}
	}
	nameless, given := t.found, len(all) > 0
	if !t.clusters[of] && t.cfg.Remote != nil {
		var i TokenIssuer
		if i, remote = t.cfg.Remote(of); remote {
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
	if len(all) == 0 && !t.clusters[of] && !remote {
		err = fmt.Errorf("%w: the call is of cluster %.63q (%s), which is not known here", ErrUnavailable, of, clusterMetadata)
	}
	return all, remote, err
}
