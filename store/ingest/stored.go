package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// stored is the contents of the store as this leader wrote them and found them at the beginning of its term, whatever
// others made of them.
type stored struct {
	hashes   map[model.Key]model.Hash
	secrets  map[model.Key]*model.Secret // of the keys in hashes
	unknown  map[string]model.Hash       // records of kinds that this build does not know, by path
	contents kv.Contents                 // for the next head
	after    int64                       // revision of the head; 0: there is no head
}

func newStored() *stored { return &stored{} }

// load replaces everything by the answer of a load.
func (s *stored) load(e Loaded) {
	*s = stored{hashes: e.Have, secrets: e.Secrets, unknown: e.Unknown, contents: e.Contents, after: e.After}
	if s.secrets == nil {
		s.secrets = map[model.Key]*model.Secret{}
	}
}

// forget forgets everything except the revision of the head.
func (s *stored) forget() { *s = stored{after: s.after} }

// at returns the stored hash of a path; zero: no record is stored there.
func (s *stored) at(path string) model.Hash {
	if key, err := model.ParsePath(path); err == nil {
		return s.hashes[key]
	}
	return s.unknown[path]
}

// put notes that a record was written.
func (s *stored) put(r model.Record) {
	key := r.Meta().Key
	s.hashes[key] = r.Meta().Hash
	if secret, is := r.(*model.Secret); is {
		s.secrets[key] = secret
	}
}

// remove notes that a record was deleted.
func (s *stored) remove(key model.Key) {
	delete(s.hashes, key)
	delete(s.secrets, key)
}

// dropUnknown notes that a record of an unknown kind will be deleted.
func (s *stored) dropUnknown(paths []string) {
	s.contents = s.contents.Clone()
	s.unknown = maps.Clone(s.unknown)
	for _, path := range paths {
		s.contents.Replace(path, s.unknown[path], model.Hash{})
		delete(s.unknown, path)
	}
}

// allSecrets returns all stored Secrets in the order of their keys, those too whose object cannot be understood any
// more: they stay in effect, so they must open.
func (s *stored) allSecrets() []*model.Secret {
	all := make([]*model.Secret, 0, len(s.secrets))
	for _, key := range slices.SortedFunc(maps.Keys(s.secrets), model.Key.Compare) {
		all = append(all, s.secrets[key])
	}
	return all
}

// shareKeys replaces keys by equal ones of wanted records: keys of a load hold whole paths of etcd in memory.
func (s *stored) shareKeys(wanted map[model.Key]model.Record) {
	for key, hash := range s.hashes {
		if want := wanted[key]; want != nil {
			s.hashes[want.Meta().Key] = hash
		}
	}
}
