package kvtest

import (
	"fmt"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Backup copies the data in Dir into a new directory and returns the path of the copy, for Restart. The server
// restarts, on the data in Dir and with a new Store.
func (s *Server) Backup() string {
	s.t.Helper()
	s.Stop()
	to := filepath.Join(s.t.TempDir(), "backup")
	if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
		s.t.Fatal(err)
	}
	s.Restart(s.dir)
	return to
}

// Restored makes data directories for Restart, as after restores of the present data, and returns their paths by name.
// The server restarts several times, and then runs on the data in Dir with a new Store.
//
// "same id" has the same cluster id and revision. "bumped" has the same cluster id, raised revisions and no history, as
// after `etcdutl snapshot restore --bump-revision --mark-compacted`. "new cluster id" has all keys, but another cluster
// id and revisions of its own.
func (s *Server) Restored() map[string]string {
	s.t.Helper()
	all, err := s.Client().Get(s.t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	same, bumped, other := s.Backup(), s.Backup(), filepath.Join(s.t.TempDir(), "other")
	s.Restart(bumped)
	var last int64
	for i := range 500 {
		resp, err := s.Client().Put(s.t.Context(), "elsewhere", fmt.Sprint(i))
		if err != nil {
			s.t.Fatal(err)
		}
		last = resp.Header.Revision
	}
	if err := s.Compact(s.t.Context(), last); err != nil {
		s.t.Fatal(err)
	}
	s.Restart(other)
	for _, kv := range all.Kvs {
		if _, err := s.Client().Put(s.t.Context(), string(kv.Key), string(kv.Value)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.Restart(s.dir)
	return map[string]string{"same id": same, "bumped": bumped, "new cluster id": other}
}
