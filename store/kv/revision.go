package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Several revisions of the control plane (istio.io/rev, REVISION) may serve one mesh from one etcd, and each may be a build of its own. So what a build makes of
// the configuration is the revision's own: its leader, head and records, the level and everything that its replicas say of themselves. A build
// whose normal form is wrong is wrong for the proxies of its revision, and for no others.
//
// What makes them one mesh they have in common (Family.Mesh): the keyring with its journal and clocks, the key of the MACs of sealed
// configuration, and machines, which a replica of any revision reports.
//
// What is outside etcd only one of them writes: the leader of the promoted revision (promoted/) holds the election writer/, and with it the right to write to
// Kubernetes: statuses, ConfigMaps, WorkloadEntries. An operator promotes another revision; the first that is there promotes itself.

// DefaultRevision is how the revision is named whose REVISION is empty.
const DefaultRevision = "default"

const promotedPath = "promoted/revision"

// RevisionPrefix is where the keys are that one revision of a mesh has for itself; the default revision has "" or DefaultRevision as its name.
func RevisionPrefix(mesh, revision string) string {
	if revision == "" || revision == DefaultRevision {
		return Prefix(mesh)
	}
	return Prefix(mesh) + "revisions/" + revision + "/"
}

// checkRevision refuses names that would put one revision's keys among another's.
func checkRevision(revision string) error {
	if strings.ContainsAny(revision, "/\x00") {
		return fmt.Errorf("revision %q: want a name without slashes", revision)
	}
	return nil
}

var meshFamilies = func() (all []string) {
	for _, f := range Families {
		if f.Mesh {
			all = append(all, f.Path)
		}
	}
	return all
}()

// key is the etcd key of a path of one of the Families.
func (s *Store) key(path string) string {
	for _, family := range meshFamilies {
		if strings.HasPrefix(path, family) {
			return s.mesh + path
		}
	}
	return s.prefix + path
}

// path is what key made a key of.
func (s *Store) path(key string) string {
	if path, own := strings.CutPrefix(key, s.prefix); own {
		return path
	}
	return strings.TrimPrefix(key, s.mesh)
}

// Promoted is the revision that writes to Kubernetes, read linearizably; empty: none is promoted yet. Errors are etcd's.
func (s *Store) Promoted(ctx context.Context) (revision string, err error) {
	resp, err := s.client.Get(ctx, s.key(promotedPath))
	if err != nil {
		return "", fmt.Errorf("read which revision is promoted: %w", translate(err))
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	return string(resp.Kvs[0].Value), nil
}

// Led says whether a leader of this store's revision has ever written. The error may be ErrForbidden: operators need not read records.
func (s *Store) Led(ctx context.Context) (bool, error) {
	resp, err := s.client.Get(ctx, s.prefix+headPath, clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("read whether revision %s has records: %w", s.RevisionName(), translate(err))
	}
	return resp.Count > 0, nil
}

// Promote has a revision write to Kubernetes from now on, whichever did before. A name that is empty, or has a slash, is an error.
func (s *Store) Promote(ctx context.Context, revision string) error {
	if revision == "" {
		return errors.New("promote a revision: it has no name")
	}
	if err := checkRevision(revision); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if _, err := s.client.Put(ctx, s.key(promotedPath), revision); err != nil {
		return fmt.Errorf("promote revision %q: %w", revision, translate(err))
	}
	return nil
}

// PromoteFirst promotes this store's revision where none is, while an epoch of it leads. A revision that is not the default one is not promoted where the
// default one has records: its build may be one that knows nothing of revisions, and writes to Kubernetes without asking.
// Errors are etcd's; that one is promoted already is none.
func (s *Store) PromoteFirst(ctx context.Context, epoch Epoch) error {
	conditions := []clientv3.Cmp{fence(epoch), clientv3.Compare(clientv3.CreateRevision(s.key(promotedPath)), "=", 0)}
	if s.prefix != s.mesh {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.mesh+headPath), "=", 0))
	}
	if _, err := s.client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(s.key(promotedPath), s.RevisionName())).Commit(); err != nil {
		return fmt.Errorf("promote the first revision: %w", translate(err))
	}
	return nil
}

// RevisionName is the revision that the store was opened for.
func (s *Store) RevisionName() string { return s.revision }

// Grant is one permission of a role: the keys from Key up to End, End left out; End "" is Key alone.
type Grant struct {
	Key, End string
	Write    bool // else read only
}

// Grants lists the permissions that a role needs in processes of one revision of a mesh, as `etcdctl role grant-permission` takes them: a user that
// has no others cannot touch what other revisions have for themselves.
func Grants(mesh, revision string, role Role) []Grant {
	own, common := RevisionPrefix(mesh, revision), Prefix(mesh)
	var grants []Grant
	for _, f := range Families {
		write, read := slices.Contains(f.Write, role), slices.Contains(f.Read, role)
		if !write && !read {
			continue
		}
		g := Grant{Key: own + f.Path, Write: write}
		if f.Mesh {
			g.Key = common + f.Path
		}
		if strings.HasSuffix(f.Path, "/") {
			g.End = after(g.Key)
		}
		grants = append(grants, g)
	}
	if role == RoleXDS || role == RoleIngest {
		from, end := watched(own)
		grants = append(grants, Grant{Key: from, End: end})
	}
	if role == RoleIngest && own != common {
		grants = append(grants, Grant{Key: common + headPath}) // PromoteFirst
	}
	return grants
}
