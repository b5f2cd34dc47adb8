package agentapi

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

// These are the names of the headers and the trailer of a stream.
const (
	storeHeader    = "navarch-store"
	revisionHeader = "navarch-revision"
	placeHeader    = "navarch-place"
	behindTrailer  = "navarch-behind"
)

// MinRevision identifies the newest state from which any replica has sent configuration to a proxy. A replica must not
// send the proxy configuration from an older state.
type MinRevision struct {
	Store    string // name of the store; empty: unknown
	Revision int64  // revision of the state in that store; 0: unknown, or no configuration was sent
	// Place is the position of the state in the sequence of all writes of leaders, as an opaque text. Unlike revisions,
	// places do not begin again when etcd is restored. Empty: unknown.
	Place string
}

// maxPlace is the maximum length of an accepted place in bytes.
const maxPlace = 64

// Encode sets the headers of m in the metadata of a stream that is about to be opened. The place is set even if it is
// empty, because its header requests places from the replica (AppendVersion). The revision is set only if it is more
// than 0. The store is set only together with the revision, if its name is known.
func (m MinRevision) Encode(md metadata.MD) {
	md.Set(placeHeader, m.Place)
	if m.Revision <= 0 {
		return
	}
	md.Set(revisionHeader, encodeRevision(m.Revision))
	if m.Store != "" {
		md.Set(storeHeader, m.Store)
	}
}

// DecodeMinRevision decodes the metadata of an incoming stream from the stream's context. A place of more than 64 bytes
// counts as absent, and so does a header that was sent repeatedly. Without a valid revision above 0, Store is empty and
// Revision is 0. The values are unverified statements of the client. The result places reports whether the client
// understands places in system_version_info.
func DecodeMinRevision(ctx context.Context) (m MinRevision, places bool) {
	header := metadata.ValueFromIncomingContext(ctx, placeHeader)
	if place := single(header); len(place) <= maxPlace {
		m.Place = place
	}
	if revision, ok := decodeRevision(single(metadata.ValueFromIncomingContext(ctx, revisionHeader))); ok && revision > 0 {
		m.Store, m.Revision = single(metadata.ValueFromIncomingContext(ctx, storeHeader)), revision
	}
	return m, len(header) == 1
}

// EncodeStore adds the name of a replica's store to the headers of a stream. For an empty (unknown) name it adds
// nothing.
func EncodeStore(md metadata.MD, store string) {
	if store != "" {
		md.Set(storeHeader, store)
	}
}

// DecodeStore returns the name of a replica's store from the headers of a stream, or "" if they do not name exactly
// one.
func DecodeStore(header metadata.MD) string { return single(header.Get(storeHeader)) }

// EncodeBehind returns the trailer of a stream that a replica refuses because the replica is behind the client's
// MinRevision. The argument revision is the replica's revision.
func EncodeBehind(revision int64) metadata.MD {
	return metadata.Pairs(behindTrailer, encodeRevision(revision))
}

// DecodeBehind returns the revision in the trailer of EncodeBehind. The result ok is false if the stream ended for
// another reason, or if the text is not a revision of at least 0. If ok is false, revision is 0.
func DecodeBehind(trailer metadata.MD) (revision int64, ok bool) {
	return decodeRevision(single(trailer.Get(behindTrailer)))
}

// AppendVersion appends the text of system_version_info to b, and returns the result. The text is the revision in
// decimal. A space and the place follow if the place is not empty. The place must be empty for a client that does not
// understand places.
func AppendVersion(b []byte, revision int64, place string) []byte {
	b = strconv.AppendInt(b, revision, 10)
	if place != "" {
		b = append(append(b, ' '), place...)
	}
	return b
}

// DecodeVersion parses a text of AppendVersion. The result ok is false for other texts, which other control planes may
// send. It is also false for a negative revision, and for a place of more than 64 bytes. If ok is false, revision and
// place are zero.
func DecodeVersion(text string) (revision int64, place string, ok bool) {
	number, place, _ := strings.Cut(text, " ")
	revision, ok = decodeRevision(number)
	if !ok || len(place) > maxPlace {
		return 0, "", false
	}
	return revision, place, true
}

// encodeRevision returns the text of a revision in a header.
func encodeRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// decodeRevision parses a text of encodeRevision. It returns false for other texts.
func decodeRevision(text string) (revision int64, ok bool) {
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, false
	}
	return revision, true
}

// single returns the value of a header that was sent once. For a header that was sent never or repeatedly, it returns
// "".
func single(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}
