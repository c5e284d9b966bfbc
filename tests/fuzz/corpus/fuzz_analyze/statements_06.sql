LISTEN ch;
UNLISTEN ch;
UNLISTEN *;
NOTIFY ch, 'payload'