package member

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"navarch.io/navarch/store/kv"
)

// Fleet is the list of all replicas with a record. It is immutable.
type Fleet struct {
	Members  []Record // sorted by name
	Revision int64    // etcd's revision of the list, or of its last change
}

// Follow returns a channel that receives the present fleet, and a new fleet after each change. While etcd does not
// answer, no fleet arrives. A slow reader receives only the newest fleet. The channel is closed when ctx ends. If a
// record does not decode or names another replica, the error is logged and the replica's last good record stays in use.
// A replica without a good record is left out. Follow returns an error only if the store refuses to follow the folder
// of the records. This would be a mistake in the code.
func Follow(ctx context.Context, store *kv.Store, log *slog.Logger) (<-chan Fleet, error) {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return nil, fmt.Errorf("follow the replicas: %w", err)
	}
	fleets := make(chan Fleet, 1)
	go func() {
		defer close(fleets)
		known := map[string]reading{}
		for folder := range folders {
			var fleet Fleet
			fleet, known = read(folder, known, log)
			select {
			case <-fleets: // remove an unread fleet; no other goroutine sends, so the channel then has room
			default:
			}
			fleets <- fleet
		}
	}()
	return fleets, nil
}

// reading is the result of reading one record's path: the last good record, and the revision of the last value.
type reading struct {
	record   Record
	revision int64
	good     bool
}

// read decodes the changed records of a folder, and returns the fleet and the new value of known. known has the earlier
// readings by path.
func read(folder kv.Folder, known map[string]reading, log *slog.Logger) (Fleet, map[string]reading) {
	fleet, now := Fleet{Revision: folder.Revision}, make(map[string]reading, len(folder.Blobs))
	for _, blob := range folder.Blobs {
		last := known[blob.Path]
		if last.revision != blob.Revision {
			record, err := Decode(blob.Raw)
			if name := strings.TrimPrefix(blob.Path, Folder); err == nil && record.Name != name {
				err = fmt.Errorf("the record names replica %q", record.Name)
			}
			last.revision = blob.Revision
			if err == nil {
				last.record, last.good = record, true
			} else {
				log.Warn("a replica's record cannot be read", slog.String("path", blob.Path), slog.Any("error", err))
			}
		}
		if now[blob.Path] = last; last.good {
			fleet.Members = append(fleet.Members, last.record)
		}
	}
	return fleet, now
}
