package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Several revisions of the control plane (istio.io/rev, REVISION) may serve one mesh from one etcd, each with a build
// of its own. Each revision has its own leader, head, records, level and reports of replicas. So a faulty build affects
// only the proxies of its own revision.
//
// All revisions share the keys of the families with Family.Mesh, for example the keyring and the reports about
// machines.
//
// Only the promoted revision (promoted/) writes outside etcd. Its leader wins the election in writer/, and may then
// write statuses, ConfigMaps and WorkloadEntries to Kubernetes. The first revision promotes itself. Later an operator
// may promote another one.

// DefaultRevision is the name of the revision whose REVISION is empty.
const DefaultRevision = "default"

const promotedPath = "promoted/revision"

// RevisionPrefix returns the prefix of the keys that belong to one revision, with a slash at the end. "" and
// DefaultRevision both mean the default revision. It does not validate the names.
func RevisionPrefix(mesh, revision string) string {
	if revision == "" || revision == DefaultRevision {
		return Prefix(mesh)
	}
	return Prefix(mesh) + "revisions/" + revision + "/"
}

// checkRevision refuses names with which the keys of one revision could be among the keys of another.
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

// key returns the etcd key of a path below one of the Families.
func (s *Store) key(path string) string {
	for _, family := range meshFamilies {
		if strings.HasPrefix(path, family) {
			return s.mesh + path
		}
	}
	return s.prefix + path
}

// path is the inverse of key.
func (s *Store) path(key string) string {
	if path, own := strings.CutPrefix(key, s.prefix); own {
		return path
	}
	return strings.TrimPrefix(key, s.mesh)
}

// Promoted returns the name of the promoted revision, by a linearizable read. The name is empty if no revision is
// promoted. Errors are etcd's.
func (s *Store) Promoted(ctx context.Context) (revision string, err error) {
	resp, err := s.client.Get(ctx, s.key(promotedPath))
	if err != nil {
		return "", fmt.Errorf("read the promoted revision: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	return string(resp.Kvs[0].Value), nil
}

// Led reports whether this store's revision has a head, which means that a leader of the revision has written. Errors
// are etcd's. An error may be ErrForbidden, because operators may lack the right to read the head.
func (s *Store) Led(ctx context.Context) (bool, error) {
	resp, err := s.client.Get(ctx, s.prefix+headPath, clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("read the head of revision %s: %w", s.RevisionName(), err)
	}
	return resp.Count > 0, nil
}

// Promote promotes a revision in place of the previous one. The leader of the promoted revision may then write to
// Kubernetes. The revision need not exist yet. Errors: the name is empty, or has a slash or a NUL. All other errors are
// etcd's.
func (s *Store) Promote(ctx context.Context, revision string) error {
	if revision == "" {
		return errors.New("promote a revision: it has no name")
	}
	if err := checkRevision(revision); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if _, err := s.client.Put(ctx, s.key(promotedPath), revision); err != nil {
		return fmt.Errorf("promote revision %q: %w", revision, err)
	}
	return nil
}

// PromoteFirst promotes this store's revision if no revision is promoted and the leader with the given epoch still
// leads. While the default revision has a head, PromoteFirst promotes no other revision. The build of the default
// revision may be too old to know promotion, and would write to Kubernetes regardless. If a condition does not hold,
// PromoteFirst writes nothing and returns nil. Errors are etcd's.
func (s *Store) PromoteFirst(ctx context.Context, epoch Epoch) error {
	conditions := []clientv3.Cmp{fence(epoch), clientv3.Compare(clientv3.CreateRevision(s.key(promotedPath)), "=", 0)}
	if s.prefix != s.mesh {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.mesh+headPath), "=", 0))
	}
	if _, err := s.client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(s.key(promotedPath), s.RevisionName())).Commit(); err != nil {
		return fmt.Errorf("promote the first revision: %w", err)
	}
	return nil
}

// RevisionName returns the revision of the store, DefaultRevision if its Config names none.
func (s *Store) RevisionName() string { return s.revision }

// Grant is one permission of a role: the keys from Key up to but not including End. An empty End means Key alone.
type Grant struct {
	Key, End string
	Write    bool // permits reading and writing; false: only reading
}

// Grants lists the etcd permissions that processes of one revision need for a role, for `etcdctl role
// grant-permission`. A user with these permissions cannot write the keys of other revisions. RoleIngest can read one
// key of another revision: the head of the default revision. For an unknown role the list is nil.
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
