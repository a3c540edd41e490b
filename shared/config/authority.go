package config

import "regexp"

// Authority configures the detection of a database that is not the one written last.
type Authority struct {
	// Mark is true if a mark is kept outside the database.
	Mark bool
	// Bucket is the Cloud Storage bucket of the mark.
	Bucket string
	// Endpoint is a storage other than Google's; "" is Google's.
	Endpoint string
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)

func (a *Authority) settings() []setting {
	return []setting{
		{name: "authority.mark", def: "false",
			meaning: "keep a mark outside the database, by which a backup or a snapshot that was put back is noticed",
			field:   boolean(&a.Mark)},
		{name: "authority.bucket",
			meaning: "the bucket of Cloud Storage that has the mark, in the object `authority-mark`; of this deployment alone",
			field:   text(&a.Bucket, "a bucket's name", bucketName)},
		{name: "authority.endpoint",
			meaning: "a Cloud Storage other than Google's, reached without credentials: the emulator's",
			field:   text(&a.Endpoint, "http://host:port/storage/v1/ on this machine (localhost, 127.0.0.1, [::1])", regexp.MustCompile(`^http://(localhost|127\.0\.0\.1|\[::1\]):[0-9]{1,5}/storage/v1/$`))},
	}
}

func (c *Config) authorityRules() []rule {
	return []rule{{
		of:     []string{"authority.mark", "authority.bucket"},
		broken: c.Authority.Mark && c.Authority.Bucket == "",
		say:    "authority.mark is true: set authority.bucket, which has the mark",
	}}
}
