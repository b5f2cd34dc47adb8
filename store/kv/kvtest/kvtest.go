// Package kvtest starts a real etcd for tests in a process of its own. So test binaries do not link the server, and the
// race detector does not slow it down.
//
// Owns: a temporary directory, the process. Reads: store/kv. Never: is used outside tests.
package kvtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Mesh is the name of the mesh that tests use.
const Mesh = "test"

// Server is an etcd for one test, in a directory of its own, on a Unix socket. Its own methods fail the test on errors.
type Server struct {
	*kv.Store
	t      testing.TB
	dir    string
	socket string
	flags  []Option
	etcd   *process
}

// Option is a flag of etcd.
type Option string

// Quota returns the flag that bounds etcd's database to a number of bytes.
func Quota(bytes int64) Option { return Option(fmt.Sprint("--quota-backend-bytes=", bytes)) }

// Start runs an etcd until the test ends. It does not sync to disk, and its leases may be as short as a second. Restart
// uses the same flags.
func Start(t testing.TB, flags ...Option) *Server {
	t.Helper()
	socket, err := os.MkdirTemp("", "kv") // a test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(socket) })
	s := &Server{t: t, dir: t.TempDir(), socket: filepath.Join(socket, "s"), flags: flags}
	t.Cleanup(s.Stop)
	s.Restart(s.dir)
	return s
}

// Endpoint returns the address for --etcd-endpoints. The address is the same after Restart. Endpoint panics while the
// server is stopped.
func (s *Server) Endpoint() string { return s.Endpoints()[0] }

// Dir returns the data directory that Start made.
func (s *Server) Dir() string { return s.dir }

// Stop kills the server if it runs, and closes its Store. Afterwards the field Store is nil. The data stay.
func (s *Server) Stop() {
	s.t.Helper()
	if s.Store == nil {
		return
	}
	if err := errors.Join(s.Store.Close(), s.etcd.kill()); err != nil {
		s.t.Errorf("stop etcd: %v", err)
	}
	s.Store = nil
}

// Restart stops the server if it runs. It then starts the server on the data in dir, at the same address and with a
// new Store. The result of the method Dir stays the same, whatever the argument is.
func (s *Server) Restart(dir string) {
	s.t.Helper()
	s.Stop()
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	client := "unix://" + s.socket
	args := []string{"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=unix://peer",
		"--initial-cluster-token=" + rand.Text()} // a new data directory is a new cluster, with an id of its own
	for _, flag := range s.flags {
		args = append(args, string(flag))
	}
	var err error
	if s.etcd, err = launch(filepath.Join(dir, "etcd"), args...); err != nil {
		s.t.Fatal(err)
	}
	if s.Store, err = kv.Open(kv.Config{Mesh: Mesh, Endpoints: []string{client}, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		s.t.Fatalf("connect to etcd: %v", errors.Join(err, s.etcd.kill()))
	}
}

// Connect opens another connection, as a second process would. The connection is closed at the end of the test.
func (s *Server) Connect() *kv.Store {
	s.t.Helper()
	store, err := kv.Open(kv.Config{Mesh: Mesh, Endpoints: []string{s.Endpoint()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatalf("connect to etcd: %v", err)
	}
	s.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.t.Errorf("close the connection: %v", err)
		}
	})
	return store
}

// Elect writes a new election key without a lease, in place of an earlier key with this name, and returns its epoch.
func (s *Server) Elect(name string) kv.Epoch {
	s.t.Helper()
	key := s.LeaderPath() + "/" + name
	s.Delete(key, "")
	resp, err := s.Client().Put(s.t.Context(), key, name)
	if err != nil {
		s.t.Fatalf("elect %s: %v", name, err)
	}
	return kv.Epoch{Key: key, Revision: resp.Header.Revision}
}

// Depose deletes a leader's key.
func (s *Server) Depose(epoch kv.Epoch) {
	s.t.Helper()
	s.Delete(epoch.Key, "")
}

// MustCommit commits a batch as the first one of a new Term with the batch's epoch, and returns the head's revision.
// The head's Contents count all stored records, also those of other writers. See Term.Commit.
func (s *Server) MustCommit(b kv.Batch) int64 {
	s.t.Helper()
	return s.Term(b.Epoch).Commit(b).Revision
}

// Term is a simulated leader. It knows the records at the beginning of its term and its own writes, but no changes by
// others. One goroutine uses it.
type Term struct {
	*Server
	epoch  kv.Epoch
	place  kv.Place
	stored kv.Contents
	have   map[model.Key]model.Hash
}

// Term begins a term with an epoch. The Term knows the records that are stored now.
func (s *Server) Term(epoch kv.Epoch) *Term {
	s.t.Helper()
	stat, err := s.Stat(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := s.Load(s.t.Context(), stat.Revision)
	if err != nil {
		s.t.Fatal(err)
	}
	t := &Term{Server: s, epoch: epoch, place: stat.Head.Place.Next(kv.Place{}, time.Now()), stored: state.Contents,
		have: map[model.Key]model.Hash{}}
	for _, v := range state.Values {
		if key, err := v.Key(); err == nil {
			t.have[key] = v.Hash()
		}
	}
	return t
}

// Commit writes a batch as the next one of the term, and returns its head. It sets Epoch, Place, Stored and Was of the
// batch.
func (t *Term) Commit(b kv.Batch) kv.Head {
	t.t.Helper()
	t.place.Seq++
	b.Epoch, b.Place, b.Stored, b.Was = t.epoch, t.place, t.stored, t.have
	head, err := t.Store.Commit(t.t.Context(), b)
	if err != nil {
		t.t.Fatalf("commit: %v", err)
	}
	t.stored = head.Contents
	for _, r := range b.Puts {
		t.have[r.Meta().Key] = r.Meta().Hash
	}
	for _, key := range b.Deletes {
		delete(t.have, key)
	}
	return head
}

// Interrupted writes the state that a leader leaves if it dies in the middle of a batch: the given puts and deletes,
// and an incomplete head. It returns the head's revision.
func (s *Server) Interrupted(epoch kv.Epoch, puts []model.Record, deletes []model.Key) int64 {
	s.t.Helper()
	stat, err := s.Stat(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	head, err := proto.Marshal(&model.HeadValue{Schema: model.Schema, Epoch: epoch.Revision, LastComplete: stat.Head.CompleteRevision(),
		Place: &model.PlaceValue{Chain: stat.Head.Place.Chain, Term: stat.Head.Place.Term, Seq: stat.Head.Place.Seq}})
	if err != nil {
		s.t.Fatal(err)
	}
	ops := []clientv3.Op{clientv3.OpPut(s.Prefix()+"head", string(head))}
	for _, r := range puts {
		value, err := model.Encode(r)
		if err != nil {
			s.t.Fatal(err)
		}
		ops = append(ops, clientv3.OpPut(s.RecordKey(r.Meta().Key), string(value)))
	}
	for _, key := range deletes {
		ops = append(ops, clientv3.OpDelete(s.RecordKey(key)))
	}
	resp, err := s.Client().Txn(s.t.Context()).Then(ops...).Commit()
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Header.Revision
}

// WriteHead replaces the head by a complete one with these Contents and no Place, as another build's leader might. It
// returns the head's revision.
func (s *Server) WriteHead(contents *model.ContentsValue) int64 {
	s.t.Helper()
	stat, err := s.Stat(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	head, err := proto.Marshal(&model.HeadValue{Schema: model.Schema, Epoch: stat.Head.Epoch, Complete: true,
		LastComplete: stat.Head.CompleteRevision(), Contents: contents})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Put("head", string(head))
	if stat, err = s.Stat(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return stat.Head.Revision
}

// Put writes a key directly, without a leader. The path is relative to the Store's Prefix.
func (s *Server) Put(path, value string) {
	s.t.Helper()
	if _, err := s.Client().Put(s.t.Context(), s.Prefix()+path, value); err != nil {
		s.t.Fatal(err)
	}
}

// Delete deletes the keys in the range [key, end), or the key alone if end is empty. Both are full etcd keys.
func (s *Server) Delete(key, end string) {
	s.t.Helper()
	var opts []clientv3.OpOption
	if end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	if _, err := s.Client().Delete(s.t.Context(), key, opts...); err != nil {
		s.t.Fatal(err)
	}
}
