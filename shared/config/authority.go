package config

import "regexp"

// Mark configures the detection of a database that is not the one written last.
type Mark struct {
	// Enabled is true if a mark is kept outside the database.
	Enabled bool
	// Bucket is the Cloud Storage bucket of the mark.
	Bucket string
	// Endpoint is a storage other than Google's; "" is Google's.
	Endpoint string
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)

func (a *Mark) settings() []setting {
	return []setting{
		{name: "mark.enabled", def: "false",
			meaning: "keep a mark outside the database, which shows that a backup or a snapshot was restored",
			field:   boolean(&a.Enabled)},
		{name: "mark.bucket",
			meaning: "the bucket of Cloud Storage that has the mark, in the object `database-mark`; no other deployment may use it",
			field:   text(&a.Bucket, "a bucket's name", bucketName)},
		{name: "mark.endpoint",
			meaning: "a Cloud Storage other than Google's, reached without credentials: the emulator's",
			field:   text(&a.Endpoint, "http://host:port/storage/v1/ on this machine (localhost, 127.0.0.1, [::1])", regexp.MustCompile(`^http://(localhost|127\.0\.0\.1|\[::1\]):[0-9]{1,5}/storage/v1/$`))},
	}
}

func (c *Config) markRules() []rule {
	return []rule{{
		of:     []string{"mark.enabled", "mark.bucket"},
		broken: c.Mark.Enabled && c.Mark.Bucket == "",
		say:    "mark.enabled is true: set mark.bucket, which has the mark",
	}}
}
