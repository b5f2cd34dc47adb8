package inspect

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
)

// Commit is one batch of records that the ingester has written to the store.
type Commit struct {
	Revision  int64     `json:"revision"`  // the store's revision after the batch
	Event     time.Time `json:"event"`     // time at which the ingester received the batch's oldest change
	Committed time.Time `json:"committed"` // time of etcd's response
	Puts      int       `json:"puts"`      // number of records written
	Deletes   int       `json:"deletes"`   // number of records deleted
	// Records are the keys of the records that were written or deleted. Records is nil if there are too many to list.
	Records []model.Key `json:"-"`
}

// commits serves /debug/commits. With ?record=Kind/namespace/name it lists only the commits with a record of that name,
// in any cluster. With this parameter, commits whose Records are nil are not listed.
func commits(c Config, r *http.Request) (any, error) {
	all := []Commit{}
	if c.Commits == nil {
		return all, nil
	}
	name := r.URL.Query().Get("record")
	if name == "" {
		return append(all, c.Commits()...), nil
	}
	parts := strings.Split(name, "/")
	kind, known := model.ParseKind(parts[0])
	if len(parts) != 3 || !known {
		return nil, httpError{http.StatusBadRequest, fmt.Sprintf("record=%q: want Kind/namespace/name", name)}
	}
	is := func(k model.Key) bool { return k.Kind == kind && k.Namespace == parts[1] && k.Name == parts[2] }
	for _, one := range c.Commits() {
		if slices.ContainsFunc(one.Records, is) {
			all = append(all, one)
		}
	}
	return all, nil
}

// fleet serves /debug/fleet: the replicas, and with ?owners=1 the owner of each shard.
func fleet(c Config, r *http.Request) (any, error) {
	if c.Fleet == nil {
		return struct{}{}, nil
	}
	owners := false
	if raw := r.URL.Query().Get("owners"); raw != "" {
		var err error
		if owners, err = strconv.ParseBool(raw); err != nil {
			return nil, httpError{http.StatusBadRequest, fmt.Sprintf("owners=%q: want true or false", raw)}
		}
	}
	return c.Fleet(owners), nil
}
