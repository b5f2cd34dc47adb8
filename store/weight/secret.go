package weight

import (
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Bytes of a Secret above secretFree weigh secretCopies times. The leader has the object, the record and the stored
// record of a Secret, and each replica has the record. Secrets of a certificate with its chain and key weigh nothing,
// so that a renewed certificate is never refused.
const (
	secretFree   = 16 << 10
	secretCopies = 4
)

// MeasureSecret computes the factors of a Secret's record, whose private key or credentials have a number of bytes
// outside of the record. Measure has no factors for Secrets, since replicas do not plan them for other proxies.
func MeasureSecret(r *model.Secret, private int) Load {
	large := max(0, proto.Size(r.Spec)+private-secretFree)
	return Load{key: r.Key, fixed: (large*secretCopies + perByte - 1) / perByte}
}
