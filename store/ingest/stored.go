package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// stored describes the records of the store as this leader knows them: the last load, and its own writes since. It does
// not include changes by other writers.
type stored struct {
	hashes   map[model.Key]model.Hash
	secrets  map[model.Key]*model.Secret // stored Secrets that decode
	unknown  map[string]model.Hash       // records of kinds that this build does not know, by path
	contents kv.Contents                 // counts and digests of the records, for the next head (the key of etcd that each batch writes)
	after    int64                       // revision of the newest head; 0: there is no head
}

func newStored() *stored { return &stored{} }

// load replaces everything by the result of a load.
func (s *stored) load(e Loaded) {
	*s = stored{hashes: e.Have, secrets: e.Secrets, unknown: e.Unknown, contents: e.Contents, after: e.After}
	if s.secrets == nil {
		s.secrets = map[model.Key]*model.Secret{}
	}
}

// forget drops everything except the revision of the head.
func (s *stored) forget() { *s = stored{after: s.after} }

// at returns the hash of the record that is stored at a path. The result is zero if no record is stored there.
func (s *stored) at(path string) model.Hash {
	if key, err := model.ParsePath(path); err == nil {
		return s.hashes[key]
	}
	return s.unknown[path]
}

// put adds a record that was written.
func (s *stored) put(r model.Record) {
	key := r.Meta().Key
	s.hashes[key] = r.Meta().Hash
	if secret, is := r.(*model.Secret); is {
		s.secrets[key] = secret
	}
}

// remove removes a record that was deleted.
func (s *stored) remove(key model.Key) {
	delete(s.hashes, key)
	delete(s.secrets, key)
}

// dropUnknown removes records of unknown kinds that will be deleted. It does not change the maps of the load.
func (s *stored) dropUnknown(paths []string) {
	s.contents = s.contents.Clone()
	s.unknown = maps.Clone(s.unknown)
	for _, path := range paths {
		s.contents.Replace(path, s.unknown[path], model.Hash{})
		delete(s.unknown, path)
	}
}

// allSecrets returns all stored Secrets sorted by key, including those whose object is unreadable. Secrets of
// unreadable objects stay in effect, so replicas must be able to decrypt them.
func (s *stored) allSecrets() []*model.Secret {
	all := make([]*model.Secret, 0, len(s.secrets))
	for _, key := range slices.SortedFunc(maps.Keys(s.secrets), model.Key.Compare) {
		all = append(all, s.secrets[key])
	}
	return all
}

// shareKeys replaces keys by equal keys of wanted records. The strings in keys of a load would keep whole paths of etcd
// in memory.
func (s *stored) shareKeys(wanted map[model.Key]model.Record) {
	for key, hash := range s.hashes {
		if want := wanted[key]; want != nil {
			s.hashes[want.Meta().Key] = hash
		}
	}
}
